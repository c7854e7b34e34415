//! Load on the Redis: a fixed rate of reads, writes and deletions, by turns growing and shrinking, with snapshots; each answer is checked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{failed, SoakError};
use crate::memory::content::{below, mix};
use crate::program::redis::{Connection, Server};
use crate::timing::latency::Latency;

/// Requests a second.
const RATE: u32 = 2_000;
/// It grows for so long, and shrinks for as long; each time it grows it is saved once.
const TURN: Duration = Duration::from_secs(150);
/// Of a hundred requests while it grows, or shrinks: writes, and deletions.
const GROWING: (u64, u64) = (60, 0);
const SHRINKING: (u64, u64) = (5, 40);
/// Least and most bytes of a value.
const BYTES: (u64, u64) = (512, 4096);

#[derive(Default)]
struct Shared {
    latency: Mutex<Latency>,
    wrong: Mutex<Option<String>>,
    stop: AtomicBool,
}

/// The client; ends when this is dropped.
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub fn start(server: &Server, keys: u32, seed: u64) -> Result<Self, SoakError> {
        let connection = server.connect()?;
        let shared = Arc::new(Shared::default());
        let mut client = Client {
            connection,
            versions: vec![0; keys as usize],
            dice: Pcg64Mcg::seed_from_u64(seed),
            seed,
        };
        let told = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .spawn(move || {
                if let Err(why) = client.run(&told) {
                    *told.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                }
            })
            .map_err(failed("start a client"))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Latencies since this was asked last.
    pub fn since_last(&self) -> Latency {
        std::mem::take(&mut self.shared.latency.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was wrong with an answer.
    pub fn wrong(&self) -> Option<String> {
        let wrong = self.shared.wrong.lock();
        wrong.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Client {
    connection: Connection,
    /// How often each key was written; 0 where it was deleted.
    versions: Vec<u32>,
    dice: Pcg64Mcg,
    seed: u64,
}

impl Client {
    fn run(&mut self, shared: &Shared) -> Result<(), String> {
        let said = |error: redis::RedisError| format!("the Redis: {error}");
        let began = Instant::now();
        let (mut done, mut saved) = (0u32, 0u32);
        while !shared.stop.load(Relaxed) {
            let due =
                began + Duration::from_secs(u64::from(done / RATE)) + Duration::from_secs(1) * (done % RATE) / RATE;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let turn = (began.elapsed().as_secs() / TURN.as_secs()) as u32;
            let is_growing = turn % 2 == 0;
            if is_growing && saved == turn / 2 && began.elapsed().as_secs() % TURN.as_secs() > TURN.as_secs() / 2 {
                saved += 1;
                redis::cmd("BGSAVE")
                    .query::<redis::Value>(&mut self.connection)
                    .map_err(said)?;
            }
            self.request(if is_growing { GROWING } else { SHRINKING })
                .map_err(|why| match why {
                    Why::Redis(error) => said(error),
                    Why::Wrong(what) => what,
                })?;
            let took = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
            shared
                .latency
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record(took);
            done += 1;
        }
        Ok(())
    }

    fn request(&mut self, (writes, deletions): (u64, u64)) -> Result<(), Why> {
        let key = below(self.dice.next_u64(), self.versions.len() as u64) as usize;
        let draw = below(self.dice.next_u64(), 100);
        let name = format!("key:{key}");
        if draw < writes {
            self.versions[key] += 1;
            let value = self.value(key);
            let _: redis::Value = redis::cmd("SET").arg(name).arg(value).query(&mut self.connection)?;
        } else if draw < writes + deletions {
            let was_there = std::mem::take(&mut self.versions[key]) > 0;
            let deleted: u64 = redis::cmd("DEL").arg(name).query(&mut self.connection)?;
            if deleted != u64::from(was_there) {
                return Err(Why::Wrong(format!("key {key}: {deleted} deleted")));
            }
        } else {
            let value: Option<Vec<u8>> = redis::cmd("GET").arg(name).query(&mut self.connection)?;
            let right = (self.versions[key] > 0).then(|| self.value(key));
            if value != right {
                return Err(Why::Wrong(format!("key {key} has another value than was written")));
            }
        }
        Ok(())
    }

    /// What was written last.
    fn value(&self, key: usize) -> Vec<u8> {
        let of = mix(self.seed ^ (key as u64) << 32 ^ u64::from(self.versions[key]));
        let mut dice = Pcg64Mcg::seed_from_u64(of);
        let length = BYTES.0 + below(dice.next_u64(), BYTES.1 - BYTES.0);
        let mut bytes = vec![0; length as usize];
        dice.fill_bytes(&mut bytes);
        bytes
    }
}

enum Why {
    Redis(redis::RedisError),
    Wrong(String),
}

impl From<redis::RedisError> for Why {
    fn from(error: redis::RedisError) -> Self {
        Self::Redis(error)
    }
}
