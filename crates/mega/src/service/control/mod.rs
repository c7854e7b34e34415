//! The socket by which the daemon is asked: varlink, by peer credentials. Root may change, a group may read.
//!
//! The protocol is here, in a few lines, and not a crate's: of those that there are (2026-11), `zlink` needs an async runtime, and `varlink`
//! hands its handlers no credentials of who asks.

mod varlink;

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use mega_linux::sys::{group, peer, Peer};
use rustix::event::{PollFd, PollFlags};
use serde_json::{json, Value as Json};

use super::socket::listen;
pub use varlink::Order;
use varlink::{answer, refusal, May, END};

/// So many may be connected; one more takes the place of who was silent for longest.
const MOST: usize = 32;
/// The longest call.
const CALL_BYTES: usize = 64 << 10;
/// The longest answer that is read.
const ANSWER_BYTES: u64 = 64 << 20;
/// What one turn does at most: so many let in, so many reads and calls of one connection, and none begun after so long. Signals wait meanwhile.
const ADMITTED: usize = 64;
const STEPS: usize = 8;
const TURN: Duration = Duration::from_millis(200);
/// Who neither asks nor reads for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is refused.
const ONLY: &str = "only root, and the group that [daemon] names, may ask the daemon";

/// The socket and who is connected.
pub struct Control {
    path: PathBuf,
    listener: UnixListener,
    readers: Option<u32>,
    connections: Vec<Connection>,
}

struct Connection {
    stream: UnixStream,
    may: May,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    last: Instant,
}

impl Control {
    /// Listens, and lets this group in.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(path: &Path, readers: &str) -> io::Result<Self> {
        let mut control = Self {
            path: path.to_owned(),
            listener: listen(path)?,
            readers: None,
            connections: Vec::new(),
        };
        control.admit(readers);
        Ok(control)
    }

    /// Lets this group in, and no other. Where it is not there, root alone.
    pub fn admit(&mut self, readers: &str) {
        let readers = group(readers);
        if std::mem::replace(&mut self.readers, readers) != readers {
            // Whoever was let in by the old group connects again.
            self.connections.retain(|connection| connection.may == May::Change);
        }
        // Anybody may knock: giving the socket to the group would need CAP_CHOWN. Who may come in is said by the kernel, not by the mode.
        let mode = if readers.is_some() { 0o666 } else { 0o600 };
        let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(mode));
    }

    /// What to wait for.
    pub fn waits_for(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.connections.iter().map(|of| match of.unsent.is_empty() {
            true => PollFd::from_borrowed_fd(of.stream.as_fd(), PollFlags::IN),
            false => PollFd::from_borrowed_fd(of.stream.as_fd(), PollFlags::OUT),
        });
        [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)]
            .into_iter()
            .chain(connections)
    }

    /// Lets in who waits, answers who asks, drops who is gone. Never waits itself.
    pub fn turn(&mut self, carry_out: &mut dyn FnMut(Order) -> Json) {
        for _ in 0..ADMITTED {
            let Ok((stream, _)) = self.listener.accept() else { break };
            let Ok(who) = peer(&stream) else { continue };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let may = rights(&who, self.readers);
            if may == May::Nothing {
                // Without a place, which they might take from others.
                let _ = (&stream).write(&refusal());
                continue;
            }
            if self.connections.len() >= MOST {
                let oldest = (0..self.connections.len()).min_by_key(|at| self.connections[*at].last);
                oldest.map(|at| self.connections.swap_remove(at));
            }
            self.connections.push(Connection {
                stream,
                may,
                heard: Vec::new(),
                unsent: Vec::new(),
                last: Instant::now(),
            });
        }
        let began = Instant::now();
        self.connections
            .retain_mut(|of| (began.elapsed() > TURN || of.turn(carry_out).is_ok()) && of.last.elapsed() < PATIENCE);
        // Another is first the next time.
        if !self.connections.is_empty() {
            self.connections.rotate_left(1);
        }
    }

    /// Whether there are calls that have come and wait for the next turn: poll(2) does not know of them.
    pub fn has_more(&self) -> bool {
        let waits = |of: &Connection| of.unsent.is_empty() && of.heard.contains(&END);
        self.connections.iter().any(waits)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What they may who connected so.
fn rights(who: &Peer, readers: Option<u32>) -> May {
    match who.uid {
        0 => May::Change,
        // By hand, by another user, for a look: its own user is its root.
        uid if uid == rustix::process::geteuid().as_raw() => May::Change,
        _ if readers.is_some_and(|gid| who.gid == gid || who.groups.contains(&gid)) => May::Read,
        _ => May::Nothing,
    }
}

impl Connection {
    /// An error: it is over.
    fn turn(&mut self, carry_out: &mut dyn FnMut(Order) -> Json) -> io::Result<()> {
        for _ in 0..STEPS {
            self.send()?;
            if !self.unsent.is_empty() {
                return Ok(());
            }
            if let Some(end) = self.heard.iter().position(|byte| *byte == END) {
                let rest = self.heard.split_off(end + 1);
                let call = std::mem::replace(&mut self.heard, rest);
                let reply = answer(&call[..end], self.may, carry_out).map_err(|()| io::ErrorKind::InvalidData)?;
                if let Some(reply) = reply {
                    self.unsent = reply.to_string().into_bytes();
                    self.unsent.push(END);
                }
                self.last = Instant::now();
                continue;
            }
            if self.heard.len() >= CALL_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut part = [0; 4096];
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.heard.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    self.last = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What the daemon that listens there says of itself.
///
/// # Errors
/// None runs, or it is not ours to ask.
pub fn ask_status(path: &Path) -> Result<Json> {
    let shown = path.display();
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            anyhow!("no daemon runs (nobody listens on {shown})")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{ONLY} ({shown})")
        }
        _ => anyhow!("cannot ask the daemon on {shown}: {error}"),
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut call = json!({"method": "mega.Daemon.Status"}).to_string().into_bytes();
    call.push(END);
    let mut text = Vec::new();
    // Who is refused is told so before they have asked.
    let _ = stream.write_all(&call);
    let mut part = [0; 1 << 16];
    let asked = loop {
        match stream.read(&mut part) {
            Ok(0) => break Ok(()),
            Ok(read) if (text.len() + read) as u64 <= ANSWER_BYTES => text.extend_from_slice(&part[..read]),
            Ok(_) => break Err(io::Error::from(io::ErrorKind::InvalidData)),
            Err(error) => break Err(error),
        }
        if text.last() == Some(&END) {
            break Ok(());
        }
    };
    asked.context("cannot read the daemon's answer")?;
    if text.pop() != Some(END) {
        bail!("the daemon's answer has no end");
    }
    let mut answer: Json = serde_json::from_slice(&text).context("the daemon's answer cannot be read")?;
    if answer["error"] == "org.varlink.service.PermissionDenied" {
        bail!("{ONLY} ({shown})");
    }
    if let Some(error) = answer["error"].as_str() {
        bail!("the daemon answers {}", mega_cli::text::printable(error));
    }
    Ok(answer["parameters"]["status"].take())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer {
            pid: 1,
            uid,
            gid,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn root_may_change_the_group_may_read_and_others_nothing() {
        assert_eq!(rights(&who(0, 0, &[]), None), May::Change);
        assert_eq!(rights(&who(4_000_000, 7, &[]), Some(7)), May::Read);
        assert_eq!(rights(&who(4_000_000, 8, &[9, 7]), Some(7)), May::Read);
        assert_eq!(rights(&who(4_000_000, 8, &[9]), Some(7)), May::Nothing);
        assert_eq!(rights(&who(4_000_000, 0, &[0]), None), May::Nothing);
    }

    fn place() -> (tempfile::TempDir, Control) {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(&folder.path().join("s"), "no-such-group-of-mega").unwrap();
        (folder, control)
    }

    fn status(order: Order) -> Json {
        assert_eq!(order, Order::Status);
        json!({"kind": "status", "long": "x".repeat(3 << 20)})
    }

    #[test]
    fn a_long_answer_arrives_whole_at_a_slow_reader_and_nobody_else_waits() {
        let (folder, mut control) = place();
        let slow = {
            let mut slow = UnixStream::connect(folder.path().join("s")).unwrap();
            slow.write_all(b"{\"method\":\"mega.Daemon.Status\"}\0").unwrap();
            slow
        };
        control.turn(&mut status);
        assert_eq!(control.connections.len(), 1);
        assert!(!control.connections[0].unsent.is_empty(), "a socket that holds 3 MB");
        let path = folder.path().join("s");
        let other = std::thread::spawn(move || ask_status(&path));
        while !other.is_finished() {
            control.turn(&mut status);
        }
        assert_eq!(other.join().unwrap().unwrap()["kind"], "status");
        drop(slow);
        control.turn(&mut status);
        control.turn(&mut status);
        assert_eq!(control.connections.len(), 0);
    }

    #[test]
    fn who_calls_without_end_is_answered_a_little_at_a_time_and_others_meanwhile() {
        let (folder, mut control) = place();
        let mut greedy = UnixStream::connect(folder.path().join("s")).unwrap();
        let call = b"{\"method\":\"mega.Daemon.Status\",\"oneway\":true}\0";
        greedy.write_all(&call.repeat(500)).unwrap();
        let mut asked = 0;
        control.turn(&mut |_| {
            asked += 1;
            json!({})
        });
        assert!(asked <= STEPS && control.has_more(), "{asked}");
        let path = folder.path().join("s");
        let other = std::thread::spawn(move || ask_status(&path));
        let mut turns = 0;
        while !other.is_finished() {
            control.turn(&mut |_| json!({"kind": "status"}));
            turns += 1;
        }
        assert_eq!(other.join().unwrap().unwrap()["kind"], "status", "after {turns} turns");
        // Slow answers: the turn ends before all of them have been asked.
        let mut many: Vec<UnixStream> = (0..MOST / 2)
            .map(|_| UnixStream::connect(folder.path().join("s")).unwrap())
            .collect();
        many.iter_mut().for_each(|one| one.write_all(&call.repeat(2)).unwrap());
        let (each, mut asked) = (Duration::from_millis(50), 0);
        control.turn(&mut |_| {
            std::thread::sleep(each);
            asked += 1;
            json!({})
        });
        assert!(asked > 0 && each * asked <= TURN + each * STEPS as u32, "{asked}");
    }

    #[test]
    fn floods_garbage_and_endless_calls_are_bounded() {
        let (folder, mut control) = place();
        let connect = || UnixStream::connect(folder.path().join("s")).unwrap();
        let mut many = Vec::new();
        for _ in 0..3 * MOST {
            many.push(connect());
            control.turn(&mut status);
        }
        assert_eq!(control.connections.len(), MOST);
        drop(many);
        control.turn(&mut status);
        assert_eq!(control.connections.len(), 0);
        for bad in [&b"garbage\0"[..], &vec![b'x'; 2 * CALL_BYTES]] {
            let mut one = connect();
            one.write_all(bad).unwrap();
            // So much is read over several turns.
            (0..=2 * CALL_BYTES / (STEPS * 4096)).for_each(|_| control.turn(&mut status));
            assert_eq!(control.connections.len(), 0);
        }
    }
}
