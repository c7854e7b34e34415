//! The metrics: served on a Unix socket, on sockets that systemd hands over, on a loopback address and as a textfile, as the configuration says.

mod families;
mod http;
mod machine;
mod text;
pub mod totals;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_cli::exit::tell;
use mega_cli::signals::stopped;
use mega_linux::sys::{inherited_listeners, Listener};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::pipe::{pipe_with, PipeFlags};

use super::config::Where;
use super::socket::listen;
pub use families::InForce;
use families::{page, Look};
use machine::Watch;
use text::Format;
use totals::Totals;

/// In the state folder.
pub const SOCKET: &str = "metrics.sock";
/// Time between two textfiles.
const FILE_EVERY: Duration = Duration::from_secs(15);
/// A page is good for so long: who asks more often costs nothing more.
const PAGE_FOR: Duration = Duration::from_millis(500);
/// Time after a connection could not be accepted.
const REST: Duration = Duration::from_millis(100);

/// The thread that serves them.
pub struct Metrics {
    to: Where,
    in_force: Arc<Mutex<InForce>>,
    totals: Totals,
    always: Vec<Listener>,
    tcp: Option<TcpListener>,
    socket: PathBuf,
    running: Option<(JoinHandle<()>, OwnedFd)>,
}

impl Metrics {
    /// Begins; the Unix socket is in this folder.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn start(folder: &Path, to: &Where, in_force: InForce, totals: &Totals) -> Result<Self> {
        let socket = folder.join(SOCKET);
        let listener = listen(&socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
        let mut always = inherited_listeners();
        for listener in &always {
            match listener {
                Listener::Unix(listener) => listener.set_nonblocking(true)?,
                Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            }
        }
        always.push(Listener::Unix(listener));
        let mut metrics = Self {
            to: Where::default(),
            in_force: Arc::new(Mutex::new(in_force)),
            totals: totals.clone(),
            always,
            tcp: None,
            socket,
            running: None,
        };
        metrics.run(to)?;
        Ok(metrics)
    }

    /// Serves them there from now on, and no longer where they were.
    ///
    /// # Errors
    /// The address cannot be listened on; then everything stays as it was.
    pub fn change(&mut self, to: &Where) -> Result<()> {
        match *to == self.to {
            true => Ok(()),
            false => self.run(to),
        }
    }

    fn run(&mut self, to: &Where) -> Result<()> {
        let mut listeners = Vec::new();
        for listener in &self.always {
            listeners.push(match listener {
                Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
                Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            });
        }
        let tcp = match (to.listen, &self.tcp) {
            (None, _) => None,
            // It cannot be opened twice.
            (Some(address), Some(open)) if self.to.listen == Some(address) => Some(open.try_clone()?),
            (Some(address), _) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("metrics-listen: cannot listen on {address}"))?;
                listener.set_nonblocking(true)?;
                Some(listener)
            }
        };
        if let Some(tcp) = &tcp {
            listeners.push(Listener::Tcp(tcp.try_clone()?));
        }
        let (read, stop) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        self.stop();
        self.tcp = tcp;
        let server = Server {
            in_force: Arc::clone(&self.in_force),
            totals: self.totals.clone(),
            listeners,
            file: to.file.clone(),
            watch: Watch::default(),
            made: None,
            complained: false,
        };
        let thread = std::thread::Builder::new().name("mega-metrics".to_owned());
        let thread = thread
            .spawn(move || server.run(&read))
            .context("cannot start a thread")?;
        self.running = Some((thread, stop));
        self.to = to.clone();
        Ok(())
    }

    fn stop(&mut self) {
        if let Some((thread, stop)) = self.running.take() {
            let _ = rustix::io::write(&stop, &[1]);
            let _ = thread.join();
        }
        // node_exporter would show for ever what it last said.
        if let Some(file) = &self.to.file {
            let _ = fs::remove_file(file);
        }
    }

    /// Changes what is in force.
    pub fn update(&self, change: impl FnOnce(&mut InForce)) {
        change(&mut self.in_force.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_file(&self.socket);
    }
}

struct Server {
    in_force: Arc<Mutex<InForce>>,
    totals: Totals,
    listeners: Vec<Listener>,
    file: Option<PathBuf>,
    watch: Watch,
    made: Option<(Instant, Format, String)>,
    complained: bool,
}

fn fd(listener: &Listener) -> BorrowedFd<'_> {
    match listener {
        Listener::Unix(listener) => listener.as_fd(),
        Listener::Tcp(listener) => listener.as_fd(),
    }
}

impl Server {
    fn run(mut self, stop: &OwnedFd) {
        let mut due = Instant::now();
        loop {
            if self.file.is_some() && Instant::now() >= due {
                due = Instant::now() + FILE_EVERY;
                self.write_file();
            }
            let wait = match self.file {
                Some(_) => due.saturating_duration_since(Instant::now()),
                None => FILE_EVERY,
            };
            let asked: Vec<bool> = {
                let fds = std::iter::once(stop.as_fd()).chain(self.listeners.iter().map(fd));
                let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                let _ = poll(&mut fds, Some(&Timespec::try_from(wait).unwrap_or_default()));
                fds.iter().map(|fd| !fd.revents().is_empty()).collect()
            };
            if stopped(stop, Duration::ZERO) {
                return;
            }
            for (number, _) in asked.into_iter().skip(1).enumerate().filter(|(_, asked)| *asked) {
                self.answer(number);
            }
        }
    }

    fn answer(&mut self, number: usize) {
        // Who is too slow, or gone, gets nothing.
        let accepted = match self.listeners.get(number) {
            Some(Listener::Unix(listener)) => listener.accept().map(|(mut client, _)| {
                let _ = http::serve(&mut client, |format| self.page(format));
            }),
            Some(Listener::Tcp(listener)) => listener.accept().map(|(mut client, _)| {
                let _ = http::serve(&mut client, |format| self.page(format));
            }),
            None => return,
        };
        if accepted.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            // No descriptor is left, for instance.
            std::thread::sleep(REST);
        }
    }

    fn page(&mut self, format: Format) -> String {
        if let Some((when, of, text)) = &self.made {
            if *of == format && when.elapsed() < PAGE_FOR {
                return text.clone();
            }
        }
        let of = self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = page(&of, &Look::at(&of), &self.totals, &self.watch.look(), format);
        self.made = Some((Instant::now(), format, text.clone()));
        text
    }

    fn write_file(&mut self) {
        let Some(path) = self.file.clone() else { return };
        let text = self.page(Format::Prometheus);
        let written = write(&path, &text);
        // Said once, and again when it has worked in between.
        if let (Err(error), false) = (&written, self.complained) {
            tell(&format!(
                "mega: the metrics cannot be written to {}: {error}",
                path.display()
            ));
        }
        self.complained = written.is_err();
    }
}

/// Whole or not at all: a collector must not see half of it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    // The collector is another user; our umask is none of its business.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    fn get(mut stream: impl Read + Write) -> String {
        let mut text = String::new();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn they_are_on_every_way_that_is_asked_for_until_it_no_longer_is() {
        let folder = tempfile::tempdir().unwrap();
        // A free port, for a moment.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = folder.path().join("mega.prom");
        let to = Where {
            listen: Some(address),
            file: Some(file.clone()),
        };
        let mut metrics = Metrics::start(folder.path(), &to, InForce::of_nothing(), &Totals::default()).unwrap();
        let socket = folder.path().join(SOCKET);
        for text in [
            get(UnixStream::connect(&socket).unwrap()),
            get(TcpStream::connect(address).unwrap()),
        ] {
            assert!(
                text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nmega_dry_run 0\n"),
                "{text}"
            );
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let began = Instant::now();
        while !file.exists() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(fs::read_to_string(&file).unwrap().contains("\nmega_dry_run 0\n"));
        assert_eq!((mode(&file), mode(&socket)), (0o644, 0o600));

        // An address that is taken changes nothing.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let wrong = Where {
            listen: Some(taken.local_addr().unwrap()),
            file: None,
        };
        assert!(metrics.change(&wrong).is_err());
        metrics.update(|of| of.dry_run = true);
        std::thread::sleep(PAGE_FOR);
        assert!(get(TcpStream::connect(address).unwrap()).contains("\nmega_dry_run 1\n"));

        let same = Where {
            listen: Some(address),
            file: None,
        };
        metrics.change(&same).unwrap();
        assert!(!file.exists());
        assert!(get(TcpStream::connect(address).unwrap()).contains("200 OK"));
        metrics.change(&Where::default()).unwrap();
        assert!(TcpStream::connect(address).is_err());
        assert!(get(UnixStream::connect(&socket).unwrap()).contains("200 OK"));
        drop(metrics);
        assert!(!socket.exists());
    }

    #[test]
    fn a_textfile_is_replaced_as_a_whole_and_a_link_in_its_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("x.prom"), folder.path().join("other"));
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("x.prom.new")).unwrap();
        write(&path, "a\n").unwrap();
        write(&path, "b\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    }
}
