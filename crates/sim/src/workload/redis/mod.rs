//! Redis's memory behaviour: a dictionary of keys, values from jemalloc, and jemalloc's purging.
//!
//! Modelled, after Redis 7 and its jemalloc 5: the dictionary's bucket array that doubles and is moved over bucket by bucket
//! (dict.c), an entry, a key and an object beside each value (object.c, sds.c), the size classes, slabs, extents and decay-based
//! purging of [`Jemalloc`]; the copy of a large value into a reply (networking.c). SET, HSET, GET, DEL and HDEL and reading everything.
//!
//! Not modelled: sockets and the kernel's work for them (a constant for each request), pipelining, several clients at once, small
//! hashes (listpack), expiry, eviction, active defragmentation, snapshots, replication, I/O threads, jemalloc's thread cache and its metadata. A request's time is
//! that of the server, with the wait for the requests before it where several are under way at once.

mod decay;
mod dict;
mod extents;
mod jemalloc;
mod paper;
mod server;

pub use jemalloc::{class_bytes, Jemalloc, Object};

use super::pattern::{self, below, item_bytes, mix, share_limit, Zipf};
use super::program::{after, check_share, describe};
use super::{Memory, Program, ProgramError, Progress, Results};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use server::Server;
use std::collections::VecDeque;

/// Options of [`Redis`]: what it is loaded with, what is deleted, and what is asked then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisOptions {
    /// Number of keys.
    pub keys: u64,
    /// Least bytes of a value.
    pub least_bytes: u64,
    /// Most bytes of a value; sizes are uniform between both.
    pub most_bytes: u64,
    /// All in one hash (HSET, HDEL, HGETALL), not keys of their own (SET, DEL, GET).
    pub hash: bool,
    /// Share of the keys deleted at random after the load.
    pub delete_share: f64,
    /// Time to rest after the load and the deletes, in ns; jemalloc's background thread purges meanwhile.
    pub rest_ns: u64,
    /// Read everything once then.
    pub read_all: bool,
    /// Time to serve random requests for, in ns.
    pub time_ns: u64,
    /// Number of requests, instead of a duration.
    pub requests: Option<u64>,
    /// Share of reads among them; the others write a key anew.
    pub reads: f64,
    /// Exponent of the Zipf distribution of keys (0 is uniform; must be below 1).
    pub zipf: f64,
    /// Requests per second at a fixed rate (latency from the intended start); 0: one after the other.
    pub rate: u64,
    /// Requests of all clients that are under way at once, in the load and while it serves: each waits for those before it, and the next is sent
    /// when its answer is there. 1: a request is timed by itself. Not with a rate.
    pub in_flight: u32,
    /// What a request costs besides memory, in ns: reading, parsing, answering. About 2 µs when clients pipeline, 10 µs when not.
    pub request_ns: u64,
    /// jemalloc's `dirty_decay_ms`, in ns: free pages go back within this time.
    pub decay_ns: u64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            keys: 100_000,
            least_bytes: 4096,
            most_bytes: 4096,
            hash: false,
            delete_share: 0.0,
            rest_ns: 0,
            read_all: false,
            time_ns: 0,
            requests: None,
            reads: 0.5,
            zipf: 0.0,
            rate: 0,
            in_flight: 1,
            request_ns: 2000,
            decay_ns: 10_000_000_000,
            seed: 1,
        }
    }
}

/// Keys at most: each takes the model some hundred bytes.
const MOST_KEYS: u64 = 1 << 25;

#[derive(Debug)]
enum State {
    Load {
        i: u64,
    },
    Delete {
        i: u64,
    },
    Rest {
        until_ns: u64,
    },
    ReadAll {
        i: u64,
    },
    Serve {
        zipf: Zipf,
        rng: Pcg64Mcg,
        start_ns: u64,
        end_ns: u64,
    },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
    server: Option<Server>,
    state: State,
    /// Send times of the last answers, the latest last; none before a phase's first.
    answered: VecDeque<u64>,
    results: Results,
}

impl Redis {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Invalid sizes or shares; more than 2^25 keys; more than a million requests at once.
    pub fn new(options: RedisOptions) -> Result<Self, ProgramError> {
        check_share("delete_share", options.delete_share)?;
        check_share("reads", options.reads)?;
        let o = options;
        if o.keys == 0 || o.keys > MOST_KEYS || o.least_bytes > o.most_bytes || o.most_bytes > 512 << 20 {
            let text = format!(
                "{} keys with values of {} to {} bytes: expected up to 2^25 keys and 512 MiB",
                o.keys, o.least_bytes, o.most_bytes
            );
            return Err(ProgramError::Usage(text));
        }
        if o.in_flight > 1_000_000 || (o.in_flight > 1 && o.rate > 0) {
            let text = format!(
                "{} requests at once: up to 1,000,000, and not at a fixed rate",
                o.in_flight
            );
            return Err(ProgramError::Usage(text));
        }
        Ok(Self {
            options,
            server: None,
            state: State::Load { i: 0 },
            answered: VecDeque::new(),
            results: Results::default(),
        })
    }

    fn value_bytes(&self, i: u64) -> u64 {
        item_bytes(self.options.seed, i, self.options.least_bytes, self.options.most_bytes)
    }

    /// Bytes that the allocator has handed out, and bytes of pages that it keeps (in use or not given back yet).
    #[must_use]
    pub fn heap_bytes(&self) -> (u64, u64) {
        self.server
            .as_ref()
            .map_or((0, 0), |s| (s.heap.allocated_bytes(), s.heap.kept_bytes()))
    }

    /// One request, timed from `began` on, or from when it was sent where several are under way. Returns the time in ns.
    fn request<M: Memory>(&mut self, memory: &mut M, what: Request, i: u64, began: u64) -> Result<u64, ProgramError> {
        let (bytes, hash) = (self.value_bytes(i), self.options.hash);
        memory.work(self.options.request_ns);
        if let Some(server) = &mut self.server {
            match what {
                Request::Set => server.set(memory, i, bytes, hash)?,
                Request::Get => server.get(memory, i, bytes)?,
                Request::Del => server.delete(memory, i)?,
            }
            server.heap.tick(memory)?;
        }
        let name = match what {
            Request::Set => "set",
            Request::Get => "get",
            Request::Del => "del",
        };
        let now = memory.now_ns();
        let took = now - self.sent(began, now);
        self.results.record(name, took);
        self.results.operations += 1;
        self.results.mark(now, 1);
        Ok(took)
    }

    /// When the request that is answered now was sent: when the answer came that made room for it.
    fn sent(&mut self, began: u64, now: u64) -> u64 {
        let most = self.options.in_flight as usize;
        if most <= 1 {
            return began;
        }
        let room = self.answered.len() == most;
        let sent = if room { self.answered.pop_front() } else { None };
        self.answered.push_back(now);
        // The first ones are all sent when the phase begins.
        let start = self.results.phases.last().map_or(began, |phase| phase.start_ns);
        sent.unwrap_or(start)
    }

    fn start_serving(&mut self, now: u64) {
        self.answered.clear();
        self.results.begin("serve", now);
        self.state = State::Serve {
            zipf: Zipf::new(self.options.keys, self.options.zipf),
            rng: pattern::rng(self.options.seed),
            start_ns: now,
            end_ns: after(now, self.options.time_ns),
        };
    }
}

#[derive(Debug, Clone, Copy)]
enum Request {
    Set,
    Get,
    Del,
}

impl<M: Memory> Program<M> for Redis {
    describe!("redis");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        if self.server.is_none() {
            self.server = Some(Server::new(memory, o.keys, o.decay_ns, o.seed)?);
            self.results.begin("load", memory.now_ns());
        }
        let mut served = self.results.phases.last().map_or(0, |p| p.operations);
        loop {
            let now = memory.now_ns();
            if now >= until_ns && !matches!(self.state, State::Done) {
                return Ok(Progress::Ran);
            }
            match &mut self.state {
                State::Load { i } => {
                    let this = *i;
                    *i += 1;
                    if this < o.keys {
                        self.request(memory, Request::Set, this, now)?;
                    } else {
                        self.results.begin("delete", now);
                        self.state = State::Delete { i: 0 };
                    }
                }
                State::Delete { i } => {
                    let this = *i;
                    *i += 1;
                    if this >= o.keys || o.delete_share == 0.0 {
                        self.results.begin("rest", now);
                        self.state = State::Rest {
                            until_ns: after(now, o.rest_ns),
                        };
                    } else if o.delete_share >= 1.0 || mix(o.seed ^ mix(this)) < share_limit(o.delete_share) {
                        self.request(memory, Request::Del, this, now)?;
                        self.results.add("deleted", 1);
                    }
                }
                State::Rest { until_ns } => {
                    if now < *until_ns {
                        let wake = match &mut self.server {
                            Some(server) => server.heap.background(memory)?,
                            None => u64::MAX,
                        };
                        return Ok(Progress::Sleeps((*until_ns).min(wake)));
                    }
                    if o.read_all {
                        self.results.begin("read-all", now);
                        self.state = State::ReadAll { i: 0 };
                    } else {
                        self.start_serving(now);
                        served = 0;
                    }
                }
                State::ReadAll { i } => {
                    let this = *i;
                    *i += 1;
                    if this < o.keys {
                        self.request(memory, Request::Get, this, now)?;
                    } else {
                        self.start_serving(now);
                        served = 0;
                    }
                }
                State::Serve {
                    zipf,
                    rng,
                    start_ns,
                    end_ns,
                } => {
                    if o.requests.map_or(now >= *end_ns, |n| served >= n) {
                        self.state = State::Done;
                        continue;
                    }
                    let mut began = now;
                    if let Some(interval_ns) = 1_000_000_000u64.checked_div(o.rate) {
                        began = start_ns.saturating_add(served.saturating_mul(interval_ns));
                        if now < began {
                            return Ok(Progress::Sleeps(began));
                        }
                    }
                    let random = rng.next_u64();
                    // Popular keys are scattered over the memory: the rank is not the order of the load.
                    let i = if o.zipf == 0.0 {
                        below(random, o.keys)
                    } else {
                        below(mix(zipf.rank(random)), o.keys)
                    };
                    let read = random & 1023 < (o.reads * 1024.0) as u64;
                    let took = self.request(memory, if read { Request::Get } else { Request::Set }, i, began)?;
                    // Of both kinds together, without those of the load.
                    self.results.record("serve", took);
                    served += 1;
                }
                State::Done => return Ok(Progress::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};
    use crate::workload::{Latency, PAGE};

    fn options() -> RedisOptions {
        RedisOptions {
            keys: 2000,
            request_ns: 100,
            ..RedisOptions::default()
        }
    }

    #[test]
    fn four_kb_values_take_the_next_class_and_all_of_it_is_accounted_for() {
        let (m, p) = run(Redis::new(options()).unwrap());
        let (allocated, kept) = p.heap_bytes();
        // 5120 for the value, 32 for the entry, 16 for key and object each, and the table of 2048 buckets.
        assert_eq!(allocated, 2000 * (5120 + 32 + 16 + 16) + 2048 * 8);
        assert!(
            kept >= allocated && kept < allocated * 11 / 10,
            "{kept} for {allocated}"
        );
        assert!(m.resident_pages() * PAGE <= kept);
        assert_eq!(p.results.latency("set").map(Latency::count), Some(2000));
    }

    #[test]
    fn what_is_deleted_goes_back_after_the_decay_and_not_before() {
        let deleted = RedisOptions {
            delete_share: 0.7,
            least_bytes: 8192,
            most_bytes: 8192,
            decay_ns: 1_000_000_000,
            ..options()
        };
        let (m, _) = run(Redis::new(deleted).unwrap());
        let before = m.resident_pages();
        let rested = RedisOptions {
            rest_ns: 3_000_000_000,
            ..deleted
        };
        let (m, p) = run(Redis::new(rested).unwrap());
        let gone = p.results.measure("deleted");
        assert!((1300..1500).contains(&gone), "{gone}");
        // Slabs of 10 KB hold two values in five pages: the chance that both are gone is a half.
        assert!(
            m.resident_pages() < before * 7 / 10,
            "{} of {before} pages",
            m.resident_pages()
        );
        assert!(m.calls[3] > 0);
    }

    #[test]
    fn serving_reads_and_writes_and_large_replies_come_and_go() {
        for (least_bytes, most_bytes, hash) in [(256, 16_384, false), (4096, 4096, true), (2 << 20, 2 << 20, false)] {
            let keys = if most_bytes > 1 << 20 { 20 } else { 500 };
            let o = RedisOptions {
                keys,
                least_bytes,
                most_bytes,
                hash,
                delete_share: 0.2,
                read_all: true,
                requests: Some(1000),
                zipf: 0.5,
                ..options()
            };
            let results = steps_do_not_matter(|| Redis::new(o).unwrap());
            assert_eq!(results.phases.last().map(|p| p.operations), Some(1000));
            assert!(results.latency("get").is_some_and(|l| l.count() > 400));
        }
    }

    #[test]
    fn a_request_waits_for_those_before_it() {
        let run_with = |in_flight| run(Redis::new(RedisOptions { in_flight, ..options() }).unwrap());
        let mean = |in_flight| run_with(in_flight).1.results.latency("set").map_or(0, Latency::mean_ns);
        // Little's law: as many times as long, but for the first ones.
        let (one, many) = (mean(1), mean(100));
        assert!(many > 90 * one && many <= 100 * one, "{many} {one}");
        assert_eq!(run_with(100).0.now_ns(), run_with(1).0.now_ns());
    }

    #[test]
    fn options_without_sense_are_refused() {
        for bad in [
            RedisOptions { keys: 0, ..options() },
            RedisOptions {
                keys: u64::MAX,
                ..options()
            },
            RedisOptions {
                least_bytes: 2,
                most_bytes: 1,
                ..options()
            },
            RedisOptions {
                most_bytes: u64::MAX,
                ..options()
            },
            RedisOptions {
                reads: f64::NAN,
                ..options()
            },
            RedisOptions {
                in_flight: 2,
                rate: 1,
                ..options()
            },
        ] {
            assert!(Redis::new(bad).is_err());
        }
    }
}
