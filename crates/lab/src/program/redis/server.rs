//! A private redis-server: own port on the loopback, own temporary directory, nothing written unless asked.

use super::{info_number, RedisError};
use crate::memory::{die_with_parent_after_exec, disable_thp_after_exec, pin_process_to_cpu};
use crate::program::Own;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How to start it.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Let Redis disable huge pages for itself, as it does by default (`disable-thp yes`). False here by default: a
    /// process that disabled them cannot be given any.
    pub disable_thp: bool,
    /// Command prefix, such as `mega run --`: the command line before `redis-server`.
    pub prefix: Vec<OsString>,
    /// CPU to pin it to once it runs.
    pub pin: Option<usize>,
    /// Folder in which to make its private directory, instead of the system's temporary one.
    pub directory: Option<PathBuf>,
    /// Its environment and pages.
    pub own: Own,
    /// More options, such as `--maxmemory 1gb`, last on its command line.
    pub extra: Vec<OsString>,
}

/// A running redis-server. It ends when this value is dropped, and with the thread that started it.
#[derive(Debug)]
pub struct Server {
    /// What was started: redis-server, or the first word of the prefix.
    child: Child,
    /// redis-server itself.
    pid: i32,
    pidfd: OwnedFd,
    port: u16,
    directory: tempfile::TempDir,
    ended: bool,
}

/// Timeout of an answer while it runs: a snapshot may delay it by a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// Timeout of its first answer, before the next attempt: another server may hold the port and stay silent.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// redis-server in PATH.
fn find() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|d| d.join("redis-server"))
        .find(|p| p.is_file())
}

fn free_port() -> Result<u16, RedisError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    Ok(listener.map_err(RedisError::system("find a free port"))?.port())
}

fn connect(port: u16, patience: Duration) -> Result<redis::Connection, redis::RedisError> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let connection = client.get_connection_with_timeout(patience.min(Duration::from_secs(5)))?;
    connection.set_read_timeout(Some(patience))?;
    Ok(connection)
}

impl Server {
    /// Where redis-server is; `None` when it is not installed (see [`super::HOW_TO_INSTALL`]).
    #[must_use]
    pub fn find() -> Option<PathBuf> {
        find()
    }

    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn start(options: &ServerOptions) -> Result<Self, RedisError> {
        Self::start_on(free_port, options)
    }

    fn start_on(
        mut port: impl FnMut() -> Result<u16, RedisError>,
        options: &ServerOptions,
    ) -> Result<Self, RedisError> {
        let program = find().ok_or(RedisError::Missing)?;
        // The port is free when checked; another process may take it first, so retry.
        let mut last = RedisError::Missing;
        for _ in 0..3 {
            match Self::try_start(&program, port()?, options) {
                Ok(server) => return Ok(server),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn try_start(program: &std::path::Path, port: u16, options: &ServerOptions) -> Result<Self, RedisError> {
        let folder = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("mega-redis-").tempdir_in(folder);
        let directory = directory.map_err(RedisError::system("make a temporary directory"))?;
        let mut words = options.prefix.iter().cloned().chain([program.into()]);
        let mut command = Command::new(words.next().unwrap_or_else(|| program.into()));
        command
            .args(words)
            .arg("--port")
            .arg(port.to_string())
            .args(["--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no", "--daemonize", "no", "--disable-thp"]);
        command.arg(if options.disable_thp { "yes" } else { "no" });
        command
            .arg("--dir")
            .arg(directory.path())
            .arg("--logfile")
            .arg(directory.path().join("log"));
        command
            .args(&options.extra)
            .envs(options.own.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .current_dir("/");
        if options.own.base_pages_only {
            disable_thp_after_exec(&mut command);
        }
        let mut child = die_with_parent_after_exec(&mut command)
            .spawn()
            .map_err(RedisError::system("start it"))?;
        match Self::wait_until_ours(&mut child, port, directory.path()) {
            Ok((pid, pidfd)) => {
                let server = Self {
                    child,
                    pid,
                    pidfd,
                    port,
                    directory,
                    ended: false,
                };
                if let Some(cpu) = options.pin {
                    pin_process_to_cpu(pid, cpu).map_err(RedisError::system("pin redis-server to its CPU"))?;
                }
                Ok(server)
            }
            Err(why) => {
                let _ = child.kill();
                let _ = child.wait();
                let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(3).collect();
                Err(RedisError::Start(format!("{why}; its log ends with {tail:?}")))
            }
        }
    }

    /// Waits for an answer of the server with our directory, which tells it from another server on the same port.
    fn wait_until_ours(child: &mut Child, port: u16, directory: &std::path::Path) -> Result<(i32, OwnedFd), String> {
        let end = Instant::now() + START_TIMEOUT;
        let mut why = "no answer".to_string();
        while Instant::now() < end {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            match connect(port, FIRST_PATIENCE)
                .map_err(|e| e.to_string())
                .and_then(|mut c| {
                    let dir: Vec<String> = redis::cmd("CONFIG")
                        .arg("GET")
                        .arg("dir")
                        .query(&mut c)
                        .map_err(|e| e.to_string())?;
                    let canonical = |p: &std::path::Path| p.canonicalize().ok();
                    if dir.get(1).and_then(|d| canonical(d.as_ref())) != canonical(directory) {
                        return Err(format!("port {port} belongs to another redis-server in {dir:?}"));
                    }
                    let pid = info_number(&mut c, "server", "process_id").map_err(|e| e.to_string())?;
                    let pid = i32::try_from(pid)
                        .ok()
                        .and_then(Pid::from_raw)
                        .ok_or("bad process_id")?;
                    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| format!("pidfd_open: {e}"))?;
                    Ok((pid.as_raw_nonzero().get(), pidfd))
                }) {
                Ok(found) => return Ok(found),
                Err(e) => why = e,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("not ready after {START_TIMEOUT:?}: {why}"))
    }

    /// The process id of redis-server itself, whatever it was started under.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The process id of what was started: that of redis-server when there is no prefix.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.child.id()
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new connection.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connect(&self) -> Result<redis::Connection, RedisError> {
        Ok(connect(self.port, PATIENCE)?)
    }

    /// Stops it and returns the exit status of the started process: by SHUTDOWN, or through its pidfd.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn stop(mut self) -> Result<ExitStatus, RedisError> {
        self.end()
    }

    /// How the started process exited, if it has or does within `time`, with the last line of its log.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn ended_within(&mut self, time: Duration) -> Result<Option<(ExitStatus, String)>, RedisError> {
        let Some(status) = self.wait_until(Instant::now() + time)? else {
            return Ok(None);
        };
        let log = std::fs::read_to_string(self.directory().join("log")).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        Ok(Some((status, last.unwrap_or_default().to_string())))
    }

    /// The temporary directory, which holds its log and its dump.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    fn wait_until(&mut self, end: Instant) -> Result<Option<ExitStatus>, RedisError> {
        loop {
            let status = self.child.try_wait().map_err(RedisError::system("wait for it"))?;
            if status.is_some() || Instant::now() >= end {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) -> Result<ExitStatus, RedisError> {
        self.ended = true;
        if let Ok(mut c) = connect(self.port, PATIENCE) {
            // It answers by closing the connection, which the client reports as an error.
            let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<redis::Value>(&mut c);
        }
        if let Some(status) = self.wait_until(Instant::now() + STOP_TIMEOUT)? {
            return Ok(status);
        }
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(status) = self.wait_until(Instant::now() + Duration::from_secs(2))? {
            return Ok(status);
        }
        let _ = self.child.kill();
        self.child.wait().map_err(RedisError::system("wait for it"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_left_to_who_has_it_and_said_in_a_line_when_there_is_no_other() {
        if find().is_none() {
            eprintln!("SKIPPED: {}", super::super::HOW_TO_INSTALL);
            return;
        }
        let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let taken = stranger.local_addr().unwrap().port();
        let mut asked = 0;
        let other = Server::start_on(
            || {
                asked += 1;
                if asked == 1 {
                    Ok(taken)
                } else {
                    free_port()
                }
            },
            &ServerOptions::default(),
        );
        assert_ne!(other.unwrap().port, taken);
        let why = Server::start_on(|| Ok(taken), &ServerOptions::default())
            .unwrap_err()
            .to_string();
        assert!(why.contains("in use") && why.lines().count() == 1, "{why}");
    }
}
