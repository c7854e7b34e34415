//! Redis as the papers measure it. Sizes are the papers' times a scale. Differs: one client thread with several connections
//! instead of several threads, since there are two processors, one of them the server's.

use std::time::Duration;

use redis::Value;

use super::items::{ok, one, unexpected, Items, HASH};
use crate::memory::content::below;
use crate::program::redis::keys::is_deleted;
use crate::program::redis::pipeline::Pipeline;
use crate::program::redis::{cmd, memory, Connection, RedisError, Server, ServerOptions};
use crate::program::support::{self, detail, metric, ops_per_s, scaled, time_ns, Ender, Session};
use crate::program::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::result::{Better, Metric, Unit};
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::Latency;
use crate::workload::Common;
use rand_core::RngCore;

/// How to install it.
const INSTALL: &str = "apt install redis-server, or dnf install redis";

/// The server itself, before it holds anything, and the client.
const OTHER_BYTES: u64 = 128 << 20;

/// Estimated time of a request, with its client.
const PER_REQUEST_S: f64 = 4e-6;

/// Estimated time of a byte of its value.
const PER_BYTE_S: f64 = 1e-9;

/// The workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scenario {
    /// Sets into an empty server, each timed.
    Set,
    /// Gets and sets, half and half, on a loaded server for this long, each timed.
    Mixed(Duration),
    /// Sets, then deletes this share (0 to 1) at random.
    Delete(f64),
    /// Hsets into one hash, removes this share at random, then reads the rest of the hash.
    Hash(f64),
}

/// A scenario with its sizes.
#[derive(Debug, Clone)]
pub struct Redis {
    /// Short name.
    pub name: &'static str,
    /// What is done.
    pub scenario: Scenario,
    /// Number of keys, or of fields.
    pub count: u64,
    /// Least and most bytes of a value; sizes are uniform between them.
    pub value_bytes: (u64, u64),
    /// Connections of the one client thread while requests are timed.
    pub connections: usize,
    /// Requests in flight on each connection while requests are timed.
    pub depth: usize,
    /// Idle time between deleting, or filling, and the memory measurement.
    pub settle: Duration,
}

/// Time in which jemalloc returns freed memory: its `dirty_decay_ms` is 10 s.
const PURGED: Duration = Duration::from_secs(20);

impl Redis {
    fn new(name: &'static str, scenario: Scenario, count: u64, value_bytes: (u64, u64)) -> Self {
        Self {
            name,
            scenario,
            count,
            value_bytes,
            connections: 8,
            depth: 16,
            settle: Duration::ZERO,
        }
    }

    /// LRBHPS, table 2: 1 M sets of 4 KB into an empty server. The paper has 8 threads, pipeline 16.
    #[must_use]
    pub fn cold(scale: f64) -> Self {
        let count = scaled(1_000_000, scale, 1000);
        Self::new("redis-cold", Scenario::Set, count, (4096, 4096))
    }

    /// LRBHPS, table 3: gets and sets of 4 KB, 5:5, on the server that redis-cold leaves. The paper does not say for how
    /// long; 20 s here.
    #[must_use]
    pub fn warm(scale: f64) -> Self {
        let count = scaled(1_000_000, scale, 1000);
        let scenario = Scenario::Mixed(Duration::from_secs(20));
        Self::new("redis-warm", scenario, count, (4096, 4096))
    }

    /// LRBHPS, table 4, Del-50: 1.4 M sets of 8 KB, half of them deleted at random.
    #[must_use]
    pub fn del_50(scale: f64) -> Self {
        let count = scaled(1_400_000, scale, 1000);
        Self {
            settle: PURGED,
            ..Self::new("redis-del-50", Scenario::Delete(0.5), count, (8192, 8192))
        }
    }

    /// LRBHPS, table 4, Del-70: 1.4 M sets of 8 KB, 70 % of them deleted at random.
    #[must_use]
    pub fn del_70(scale: f64) -> Self {
        Self {
            name: "redis-del-70",
            scenario: Scenario::Delete(0.7),
            ..Self::del_50(scale)
        }
    }

    /// LRBHPS, table 4, Range-XL: 20 k sets of 256 B to 1 MB.
    #[must_use]
    pub fn range_xl(scale: f64) -> Self {
        let count = scaled(20_000, scale, 100);
        Self::new("redis-range-xl", Scenario::Delete(0.0), count, (256, 1 << 20))
    }

    /// LRBHPS, table 4, Range-S: 5 M sets of 256 B to 16 KB. Sizes are uniform here, which gives 47 GB at scale 1; the
    /// paper's 9.4 GB of memory mean that its sizes were not, and it does not say what they were.
    #[must_use]
    pub fn range_s(scale: f64) -> Self {
        let count = scaled(5_000_000, scale, 1000);
        Self::new("redis-range-s", Scenario::Delete(0.0), count, (256, 16 << 10))
    }

    /// MEGA, tables 1 and 2: 2 M sets of 4 KB into a fresh server. Two connections keep the server busy; the paper does not
    /// say how many it had.
    #[must_use]
    pub fn set(scale: f64) -> Self {
        let count = scaled(2_000_000, scale, 1000);
        Self {
            connections: 2,
            ..Self::new("redis-set", Scenario::Set, count, (4096, 4096))
        }
    }

    /// MEGA, table 3: 2 M hsets of 4 KB into a hash, 6 of the 8 GB removed at random, then all of the rest read. The paper
    /// has one HGETALL; here HSCAN in batches, whose reply does not become another copy of the data in the server.
    #[must_use]
    pub fn hset(scale: f64) -> Self {
        let count = scaled(2_000_000, scale, 1000);
        Self {
            settle: PURGED,
            ..Self::new("redis-hset", Scenario::Hash(0.75), count, (4096, 4096))
        }
    }

    /// MEGA, tables 9 and 10: 40,000 sets of 2 MB by 50 clients; no pipeline, as redis-benchmark has none.
    #[must_use]
    pub fn big(scale: f64) -> Self {
        let count = scaled(40_000, scale, 20);
        Self {
            connections: 50,
            depth: 1,
            ..Self::new("redis-2m", Scenario::Set, count, (2 << 20, 2 << 20))
        }
    }

    /// MEGA, section 4.5: the same, and then five minutes in which nobody asks for anything.
    #[must_use]
    pub fn big_after(scale: f64) -> Self {
        Self {
            name: "redis-2m-after",
            settle: Duration::from_secs(300),
            ..Self::big(scale)
        }
    }

    fn items(&self, seed: u64) -> Items {
        Items {
            count: self.count,
            value_bytes: self.value_bytes,
            seed,
        }
    }

    fn options(&self, launch: &Launch) -> ServerOptions {
        ServerOptions {
            pin: launch.program_cpu,
            directory: Some(launch.scratch.clone()),
            own: launch.own.clone(),
            ..ServerOptions::default()
        }
    }
}

/// Why a run failed.
enum Trouble {
    Redis(RedisError),
    Program(ProgramError),
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<ProgramError> for Trouble {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}

/// A run of a scenario against its server.
struct Run<'a, 'b> {
    program: &'a Redis,
    items: Items,
    session: &'a mut Session<'b>,
    pipeline: Pipeline,
    /// For requests that do not come in batches.
    connection: Connection,
    figures: Figures,
}

impl Run<'_, '_> {
    /// Sends a request for each of `keys`, as `write` packs it; each answer must pass `check`.
    fn each(
        &mut self,
        phase: &str,
        keys: impl Iterator<Item = u64>,
        write: impl Fn(u64, &mut Vec<u8>),
        mut check: impl FnMut(u64, &Value, u64) -> Result<(), RedisError>,
    ) -> Result<u64, Trouble> {
        let mut keys = keys;
        self.session.phase(phase);
        let session = &mut *self.session;
        self.pipeline.run(
            |packed| keys.next().inspect(|i| write(*i, packed)),
            |i, answer, ns| check(i, &answer, ns).map_err(Trouble::Redis),
            |done| session.progress(done).map_err(Trouble::Program),
        )
    }

    /// Stores all items, in batches that fit their size, or as the program specifies when each is timed.
    fn fill(&mut self, latency: &mut Latency) -> Result<(), Trouble> {
        let (items, hash) = (self.items, matches!(self.program.scenario, Scenario::Hash(_)));
        let timed = self.program.scenario == Scenario::Set;
        self.pipeline.depth = if timed { self.program.depth } else { items.batch() };
        let write = |i: u64, packed: &mut Vec<u8>| match hash {
            true => items.hset(i, packed),
            false => items.set(i, packed),
        };
        let start = now_ns();
        self.each("fill", 0..items.count, write, |_, answer, ns| {
            if timed {
                latency.record(ns);
            }
            if hash {
                one("HSET", answer)
            } else {
                ok("SET", answer)
            }
        })?;
        let end = now_ns();
        if !matches!(self.program.scenario, Scenario::Mixed(_)) {
            self.value("ops_per_s", items.count as f64 / seconds_between(start, end));
            self.value("elapsed_ns", (end - start) as f64);
        }
        Ok(())
    }

    fn value(&mut self, name: &str, value: f64) {
        self.figures.values.insert(name.into(), value);
    }

    /// The moment the paper measures.
    fn memory_now(&mut self) -> Result<(), Trouble> {
        self.session.watch.memory_now("");
        let (_, used_bytes) = memory(&mut self.connection)?;
        self.value("used_bytes", used_bytes as f64);
        Ok(())
    }

    /// Gets and sets, half and half, of random keys.
    fn mixed(&mut self, time: Duration, latency: &mut Latency) -> Result<(), Trouble> {
        let (items, mut rng) = (self.items, Common::of_seed(self.session.launch.seed).rng());
        self.pipeline.depth = self.program.depth;
        self.session.phase("serve");
        let session = &mut *self.session;
        let start = now_ns();
        let end = start + seconds_to_ns(time.as_secs_f64());
        let done = self.pipeline.run(
            |packed| {
                let random = rng.next_u64();
                // `below` uses the upper bits; the lowest is free for the kind.
                let (i, is_get) = (below(random, items.count), random & 1 == 0);
                if now_ns() >= end {
                    return None;
                }
                if is_get {
                    Items::get(i, packed);
                } else {
                    items.set(i, packed);
                }
                Some((i, is_get))
            },
            |(i, is_get), answer, ns| {
                latency.record(ns);
                match answer {
                    Value::BulkString(value) if is_get && items.looks_right(i, &value) => Ok(()),
                    Value::BulkString(value) if is_get => items.compare(i, &value),
                    Value::Nil if is_get => Err(RedisError::Corrupt(format!("key:{i} is missing"))),
                    other if is_get => Err(unexpected("GET", &other)),
                    other => ok("SET", &other),
                }
                .map_err(Trouble::Redis)
            },
            |done| session.progress(done).map_err(Trouble::Program),
        )?;
        let took = (start, now_ns());
        self.value("ops_per_s", done as f64 / seconds_between(took.0, took.1));
        Ok(())
    }

    /// Reads every key and compares the whole value; `kept` tells which must exist.
    fn verify(&mut self, kept: impl Fn(u64) -> bool) -> Result<(), Trouble> {
        let items = self.items;
        self.pipeline.depth = items.batch();
        self.each("read", 0..items.count, Items::get, |i, answer, _| {
            items.check(i, kept(i), answer)
        })?;
        Ok(())
    }

    /// Reads all of the hash and compares: every field that is `kept` must be there, and no other.
    fn read_hash(&mut self, kept: impl Fn(u64) -> bool) -> Result<(), Trouble> {
        let items = self.items;
        self.session.phase("read");
        let start = now_ns();
        let mut seen = vec![false; items.count as usize];
        let (mut cursor, mut read) = (0u64, 0u64);
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(HASH).arg(cursor).arg("COUNT").arg(items.batch());
            let (next, fields): (u64, Vec<(u64, Vec<u8>)>) =
                scan.query(&mut self.connection).map_err(RedisError::Protocol)?;
            for (i, value) in &fields {
                if *i >= items.count || !kept(*i) {
                    return Err(RedisError::Corrupt(format!("field {i} is present after removal")).into());
                }
                items.compare(*i, value)?;
                // A table that is being resized may return a field twice.
                seen[*i as usize] = true;
            }
            read += fields.len() as u64;
            self.session.progress(read)?;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        if let Some(lost) = (0..items.count).find(|i| kept(*i) && !seen[*i as usize]) {
            return Err(RedisError::Corrupt(format!("field {lost} is missing")).into());
        }
        self.value("read_ns", (now_ns() - start) as f64);
        Ok(())
    }

    fn all(&mut self) -> Result<(), Trouble> {
        let (mut latency, seed, items) = (Latency::new(), self.session.launch.seed, self.items);
        self.fill(&mut latency)?;
        match self.program.scenario {
            Scenario::Set => {
                self.session.settle(self.program.settle)?;
                self.memory_now()?;
                self.verify(|_| true)?;
            }
            Scenario::Mixed(time) => {
                self.session.settle(self.program.settle)?;
                self.mixed(time, &mut latency)?;
                self.memory_now()?;
                self.verify(|_| true)?;
            }
            Scenario::Delete(share) => {
                let deleted = |i: &u64| is_deleted(*i, share, seed);
                if share > 0.0 {
                    let keys = (0..items.count).filter(deleted);
                    self.pipeline.depth = 256;
                    self.each("delete", keys, Items::del, |_, answer, _| one("DEL", answer))?;
                }
                self.session.settle(self.program.settle)?;
                self.memory_now()?;
                self.verify(|i| !deleted(&i))?;
            }
            Scenario::Hash(share) => {
                let deleted = |i: &u64| is_deleted(*i, share, seed);
                self.pipeline.depth = 256;
                let keys = (0..items.count).filter(deleted);
                self.each("delete", keys, Items::hdel, |_, answer, _| one("HDEL", answer))?;
                self.session.settle(self.program.settle)?;
                self.read_hash(|i| !deleted(&i))?;
                self.memory_now()?;
            }
        }
        if latency.count() > 0 {
            support::latencies(&latency, &mut self.figures);
        }
        Ok(())
    }
}

/// What a driver's error means for the program; `server` tells whether it has ended.
fn explain(trouble: Trouble, server: Option<&mut Server>) -> ProgramError {
    let program = || "redis-server".to_string();
    match trouble {
        Trouble::Program(error) => error,
        Trouble::Redis(RedisError::Missing) => ProgramError::Missing {
            program: "redis-server",
            how: INSTALL,
        },
        Trouble::Redis(RedisError::Start(why)) => ProgramError::Start {
            program: program(),
            why,
        },
        Trouble::Redis(RedisError::Corrupt(why)) => ProgramError::Wrong {
            program: program(),
            why,
        },
        Trouble::Redis(RedisError::System { what, source }) => support::system(what)(source),
        Trouble::Redis(error) => {
            let ended = server.and_then(|server| server.ended_within(Duration::from_secs(1)).ok().flatten());
            match ended {
                Some((status, said)) => ProgramError::Ended {
                    program: program(),
                    status: status.to_string(),
                    said,
                },
                None => support::system("talk to redis-server")(std::io::Error::other(error)),
            }
        }
    }
}

impl Program for Redis {
    fn name(&self) -> String {
        self.name.into()
    }

    fn describe(&self) -> String {
        let (least, most) = self.value_bytes;
        let size = if least == most {
            format!("{least} B")
        } else {
            format!("{least} to {most} B")
        };
        let (count, client) = (
            self.count,
            format!(
                "one client thread, {} connections, pipeline {}",
                self.connections, self.depth
            ),
        );
        match self.scenario {
            Scenario::Set => format!("redis-server, {count} sets of {size}; {client}"),
            Scenario::Mixed(time) => format!(
                "redis-server with {count} values of {size}, get/set 5:5 for {} s; {client}",
                time.as_secs_f64()
            ),
            Scenario::Delete(0.0) => format!("redis-server, {count} sets of {size}"),
            Scenario::Delete(share) => format!(
                "redis-server, {count} sets of {size}, {:.0} % deleted at random",
                share * 100.0
            ),
            Scenario::Hash(share) => format!(
                "redis-server, {count} hsets of {size}, {:.0} % removed at random, the rest read by HSCAN",
                share * 100.0
            ),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let used = detail(metric("used_bytes", "used by Redis", Unit::Bytes, Better::Neither));
        let fill = Metric {
            label: "fill time".into(),
            ..time_ns()
        };
        let mut metrics = match self.scenario {
            Scenario::Set => vec![time_ns(), ops_per_s()],
            Scenario::Mixed(_) => vec![ops_per_s()],
            Scenario::Delete(_) => vec![fill, detail(ops_per_s())],
            Scenario::Hash(_) => vec![
                fill,
                metric("read_ns", "read time", Unit::Ns, Better::Lower),
                detail(ops_per_s()),
            ],
        };
        if matches!(self.scenario, Scenario::Set | Scenario::Mixed(_)) {
            metrics.extend(support::latency_metrics());
        }
        metrics.push(used);
        metrics
    }

    fn needs(&self) -> Needs {
        // Scattered sizes leave gaps, and the tables of keys exist twice while they grow.
        let server = self.items(0).server_bytes();
        Needs {
            memory_bytes: server + server / 8 + OTHER_BYTES + self.count,
            disk_bytes: 1 << 20,
        }
    }

    fn seconds(&self) -> f64 {
        let items = self.items(0);
        let pass = self.count as f64 * (PER_REQUEST_S + PER_BYTE_S * items.mean_bytes() as f64);
        let serve = match self.scenario {
            Scenario::Mixed(time) => time.as_secs_f64(),
            _ => 0.0,
        };
        0.5 + 2.0 * pass + serve + self.settle.as_secs_f64()
    }

    fn ready(&self) -> Result<(), ProgramError> {
        support::need("redis-server", INSTALL).map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        self.ready()?;
        let mut session = Session::new(self.name(), launch, watch);
        let mut server = Server::start(&self.options(launch)).map_err(|e| explain(Trouble::Redis(e), None))?;
        let _pinned = session.pin_client()?;
        session.watch.process(server.pid())?;
        let ender = Ender::of(server.pid(), launch)?;
        let open = Pipeline::open(&server, self.connections, self.depth);
        let result = open
            .and_then(|pipeline| Ok((pipeline, server.connect()?)))
            .map_err(Trouble::Redis)
            .and_then(|(pipeline, connection)| {
                let mut run = Run {
                    program: self,
                    items: self.items(launch.seed),
                    session: &mut session,
                    pipeline,
                    connection,
                    figures: Figures::default(),
                };
                run.all()?;
                Ok(run.figures)
            })
            .map_err(|trouble| explain(trouble, Some(&mut server)));
        let result = session.reason(result);
        let stopped = server.stop();
        drop(ender);
        let figures = result?;
        stopped.map_err(|e| explain(Trouble::Redis(e), None))?;
        Ok(figures)
    }
}
