//! memcached under a load of gets and sets whose keys follow a Zipf law. The client speaks the text protocol: values are
//! verified when read, and all of them at the end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand_core::RngCore;

use super::support::{self, free_port, ops_per_s, scaled, system, Ender, Session, LOOK_EVERY};
use super::task::Task;
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::program::redis::keys::Keys;
use crate::result::Metric;
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::Latency;
use crate::workload::Common;
use crate::workload::Zipf;

/// How to install it.
const INSTALL: &str = "apt install memcached, or dnf install memcached";

/// Time limits for starting and stopping.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests sent at once while filling and while reading everything.
const BULK: usize = 32;

/// About what filling and reading a key take here.
const PER_KEY_S: f64 = 20e-6;

/// A prime beyond any number of keys: multiplying by it scatters the popular keys over memory, without a collision.
const SCATTER: u64 = 4_294_967_311;

/// A loaded memcached.
#[derive(Debug, Clone)]
pub struct Memcached {
    /// Number of keys.
    pub count: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Exponent of the Zipf law; 0 is uniform.
    pub theta: f64,
    /// Gets among the requests, 0 to 1.
    pub get_share: f64,
    /// Requests in flight.
    pub depth: usize,
    /// How long it serves.
    pub serve: Duration,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Get(u64),
    Set(u64),
}

/// A connection.
struct Client {
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::with_capacity(256 << 10, stream),
            line: Vec::new(),
            value: Vec::new(),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// The next line of the answer, without its end.
    fn line(&mut self) -> std::io::Result<&str> {
        self.line.clear();
        self.reader.by_ref().take(4096).read_until(b'\n', &mut self.line)?;
        if !self.line.ends_with(b"\r\n") {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.line.truncate(self.line.len() - 2);
        std::str::from_utf8(&self.line).map_err(|_| ErrorKind::InvalidData.into())
    }

    /// The answer to a get: a value of at most `most_bytes`, or `None` when there is none.
    fn value(&mut self, most_bytes: usize) -> std::io::Result<Option<&[u8]>> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let length = line
            .strip_prefix("VALUE ")
            .and_then(|rest| rest.rsplit(' ').next()?.parse().ok());
        let length: usize = length.ok_or_else(|| std::io::Error::other(format!("it answered {line:?} to a get")))?;
        if length > most_bytes {
            return Err(std::io::Error::other(format!("a value of {length} bytes")));
        }
        self.value.resize(length, 0);
        self.reader.read_exact(&mut self.value)?;
        match (self.line()?.is_empty(), self.line()? == "END") {
            (true, true) => Ok(Some(&self.value)),
            _ => Err(std::io::Error::other("no END after a value")),
        }
    }

    /// A number of its statistics.
    fn stat(&mut self, name: &str) -> std::io::Result<Option<u64>> {
        self.send(b"stats\r\n")?;
        let mut found = None;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(found);
            }
            let mut words = line.split(' ').skip(1);
            if words.next() == Some(name) {
                found = words.next().and_then(|value| value.parse().ok());
            }
        }
    }
}

/// A server, and a client of it.
struct Server {
    task: Task,
    client: Client,
}

impl Server {
    fn start(session: &mut Session, megabytes: u64) -> Result<Self, ProgramError> {
        let mut last = None;
        // The port is free when checked; another process may take it first, so retry.
        for attempt in 0..3 {
            let port = free_port()?;
            let mut argv: Vec<OsString> = ["memcached", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-M"]
                .map(Into::into)
                .into();
            argv.extend([
                "-p".into(),
                port.to_string().into(),
                "-m".into(),
                megabytes.to_string().into(),
            ]);
            if rustix::process::geteuid().is_root() {
                argv.extend(["-u".into(), "root".into()]);
            }
            let tag = format!("memcached-{attempt}");
            let mut task = Task::start_stopped(
                session,
                &tag,
                &argv,
                session.launch.program_cpu,
                &session.launch.own,
                |c| c,
            )?;
            task.go()?;
            match Self::wait_until_ours(session, &task, port) {
                Ok(client) => return Ok(Self { task, client }),
                Err(error) => last = Some(task.why(error)),
            }
            session.check()?;
        }
        let why = last.map_or_else(String::new, |error| error.to_string());
        Err(ProgramError::Start {
            program: "memcached".into(),
            why,
        })
    }

    /// Waits for an answer of our process, which tells it from another server on the same port.
    fn wait_until_ours(session: &Session, task: &Task, port: u16) -> Result<Client, ProgramError> {
        let end = Instant::now() + START_TIMEOUT;
        loop {
            session.check()?;
            let pid = Client::connect(port).and_then(|mut client| {
                let limit = Some(Duration::from_secs(5));
                client.reader.get_ref().set_read_timeout(limit)?;
                let pid = client.stat("pid")?;
                client.reader.get_ref().set_read_timeout(None)?;
                Ok((client, pid))
            });
            match pid {
                Ok((client, pid)) if pid == u64::try_from(task.pid()).ok() => return Ok(client),
                Ok((_, pid)) => {
                    let why = format!("port {port} belongs to another server, process {pid:?}");
                    return Err(system("find a port for memcached")(std::io::Error::other(why)));
                }
                Err(error) if task.finished(LOOK_EVERY)? || Instant::now() > end => {
                    return Err(system("connect to memcached")(error));
                }
                Err(_) => {}
            }
        }
    }
}

impl Memcached {
    /// 2 M values of 4 KB, 10 GB with all that is around them; 9 gets to 1 set, exponent 0.99.
    #[must_use]
    pub fn zipf(scale: f64) -> Self {
        Self {
            count: scaled(2_000_000, scale, 1000),
            value_bytes: 4096,
            theta: 0.99,
            get_share: 0.9,
            depth: 16,
            serve: Duration::from_secs(20),
        }
    }

    fn keys(&self, seed: u64) -> Keys {
        Keys {
            count: self.count,
            value_bytes: self.value_bytes,
            seed,
        }
    }

    /// Values with keys and headers, in slab classes that grow by a quarter.
    fn server_bytes(&self) -> u64 {
        let item = self.value_bytes as u64 + 80;
        self.count * (item + item / 4) + (64 << 20)
    }

    fn pack(&self, keys: &Keys, request: Request, packed: &mut Vec<u8>) {
        match request {
            Request::Get(i) => packed.extend_from_slice(format!("get key:{i}\r\n").as_bytes()),
            Request::Set(i) => {
                packed.extend_from_slice(format!("set key:{i} 0 0 {}\r\n", self.value_bytes).as_bytes());
                packed.extend_from_slice(&keys.value(i));
                packed.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Sends what `next` gives, `depth` at a time, until it gives nothing; compares whole values when `whole`.
    fn requests(
        &self,
        (session, client): (&mut Session, &mut Client),
        (depth, whole): (usize, bool),
        mut next: impl FnMut() -> Option<Request>,
        mut answered: impl FnMut(u64),
    ) -> Result<u64, ProgramError> {
        let keys = self.keys(session.launch.seed);
        let talk = system("talk to memcached");
        let wrong = |why: String| ProgramError::Wrong {
            program: "memcached".into(),
            why,
        };
        let (mut packed, mut batch, mut done) = (Vec::new(), Vec::new(), 0);
        loop {
            packed.clear();
            batch.clear();
            while let Some(request) = (batch.len() < depth).then(&mut next).flatten() {
                self.pack(&keys, request, &mut packed);
                batch.push(request);
            }
            if batch.is_empty() {
                return Ok(done);
            }
            let sent_ns = now_ns();
            client.send(&packed).map_err(&talk)?;
            for request in &batch {
                match *request {
                    Request::Set(i) => {
                        let line = client.line().map_err(&talk)?;
                        if line != "STORED" {
                            let why = format!("it answered {line:?} to the set of key:{i}");
                            return Err(talk(std::io::Error::other(why)));
                        }
                    }
                    Request::Get(i) => {
                        let value = client.value(1 << 20).map_err(&talk)?;
                        let value = value.ok_or_else(|| wrong(format!("key:{i} is missing")))?;
                        if !keys.looks_right(i, value) || (whole && value != keys.value(i)) {
                            return Err(wrong(format!("key:{i} differs, {} bytes", value.len())));
                        }
                    }
                }
                answered(now_ns() - sent_ns);
            }
            done += batch.len() as u64;
            session.progress(done)?;
        }
    }

    fn all(&self, session: &mut Session, client: &mut Client) -> Result<Figures, ProgramError> {
        let (mut figures, mut latency) = (Figures::default(), Latency::new());
        session.phase("fill");
        let mut sets = (0..self.count).map(Request::Set);
        self.requests((session, client), (BULK, false), || sets.next(), |_| {})?;
        let zipf = Zipf::new(self.count, self.theta);
        let mut rng = Common::of_seed(session.launch.seed).rng();
        session.phase("serve");
        let start = now_ns();
        let end = start + seconds_to_ns(self.serve.as_secs_f64());
        let gets = (self.get_share * 2f64.powi(32)) as u64;
        let next = || {
            let rank = zipf.rank(rng.next_u64());
            let i = (u128::from(rank) * u128::from(SCATTER) % u128::from(self.count)) as u64;
            let is_get = u64::from(rng.next_u32()) < gets;
            (now_ns() < end).then_some(if is_get { Request::Get(i) } else { Request::Set(i) })
        };
        let done = self.requests((session, client), (self.depth, false), next, |ns| latency.record(ns))?;
        let rate = done as f64 / seconds_between(start, now_ns());
        figures.values.insert("ops_per_s".into(), rate);
        support::latencies(&latency, &mut figures);
        session.watch.memory_now("");
        session.phase("read");
        let mut gets = (0..self.count).map(Request::Get);
        self.requests((session, client), (BULK, true), || gets.next(), |_| {})?;
        Ok(figures)
    }
}

impl Program for Memcached {
    fn name(&self) -> String {
        "memcached".into()
    }

    fn describe(&self) -> String {
        format!(
            "memcached, one thread, with {} values of {} B, {:.0} % gets, Zipf {} for {} s; one client, pipeline {}",
            self.count,
            self.value_bytes,
            self.get_share * 100.0,
            self.theta,
            self.serve.as_secs_f64(),
            self.depth
        )
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![ops_per_s()];
        metrics.extend(support::latency_metrics());
        metrics
    }

    fn needs(&self) -> Needs {
        Needs {
            memory_bytes: self.server_bytes() + (64 << 20),
            disk_bytes: 1 << 20,
        }
    }

    fn seconds(&self) -> f64 {
        1.0 + self.count as f64 * PER_KEY_S + self.serve.as_secs_f64()
    }

    fn ready(&self) -> Result<(), ProgramError> {
        support::need("memcached", INSTALL).map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        self.ready()?;
        let mut session = Session::new(self.name(), launch, watch);
        let mut server = Server::start(&mut session, self.server_bytes().div_ceil(1 << 20))?;
        let _pinned = session.pin_client()?;
        session.watch.process(server.task.pid())?;
        let _ender = Ender::of(server.task.pid(), launch)?;
        let result = self.all(&mut session, &mut server.client);
        let result = result.map_err(|error| server.task.why(error));
        let figures = session.reason(result)?;
        server.task.terminate(START_TIMEOUT)?;
        Ok(figures)
    }
}
