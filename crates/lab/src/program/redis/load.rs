//! GET loads. The open loop sends at a fixed rate and measures each request from the time at which it was due, so a server
//! that stalls is charged with every request that had to wait (no coordinated omission). The closed loop sends as fast as
//! answers come.

use super::keys::Keys;
use super::{Connection, RedisError};
use crate::memory::content::below;
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::{Latency, Summary};
use crate::workload::Common;
use rand_core::RngCore;
use redis::Value;
use serde::Serialize;
use std::time::Duration;

/// Result of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loaded {
    /// Requests answered.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Share of requests that found no key.
    pub missing_share: f64,
    /// Latency: of each request since it was due (open loop), of each round trip (closed loop).
    pub latency: Summary,
}

/// Most requests sent at once when the open loop is behind.
const MOST_AT_ONCE: u64 = 64;

/// Waits until `due_ns`: sleeps while that is far, spins at the end, since a sleep may last 50 µs too long.
fn wait_until(due_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        match due_ns.saturating_sub(now) {
            0 => return now,
            left if left > 200_000 => std::thread::sleep(Duration::from_nanos(left - 150_000)),
            _ => std::hint::spin_loop(),
        }
    }
}

fn get(keys: &Keys, random: u64) -> (u64, Vec<u8>) {
    let i = below(random, keys.count);
    (i, redis::cmd("GET").arg(Keys::name(i)).get_packed_command())
}

/// Receives the answer for key `i`; true when the key is there.
fn receive(connection: &mut Connection, keys: &Keys, i: u64) -> Result<bool, RedisError> {
    match connection.recv_response()? {
        Value::BulkString(bytes) if keys.looks_right(i, &bytes) => Ok(true),
        Value::BulkString(_) => Err(RedisError::Corrupt(format!("key:{i} under load"))),
        Value::Nil => Ok(false),
        other => Err(RedisError::Answer {
            command: "GET",
            answer: format!("{other:?}"),
        }),
    }
}

fn loaded(requests: u64, missing: u64, elapsed: (u64, u64), latency: &Latency) -> Loaded {
    Loaded {
        requests,
        requests_per_s: requests as f64 / seconds_between(elapsed.0, elapsed.1),
        missing_share: missing as f64 / requests.max(1) as f64,
        latency: latency.summary(),
    }
}

/// GETs of random keys at `rate` per second for `seconds`, over one connection.
///
/// # Errors
/// When the connection is lost or a value is wrong.
pub fn open_loop(
    connection: &mut Connection,
    keys: &Keys,
    rate: f64,
    seconds: f64,
    seed: u64,
) -> Result<Loaded, RedisError> {
    let mut rng = Common::of_seed(seed).rng();
    let total = (rate * seconds).max(1.0) as u64;
    let interval_ns = 1e9 / rate.max(1e-3);
    let start = now_ns();
    let due = |k: u64| start + (k as f64 * interval_ns) as u64;
    let (mut latency, mut missing, mut sent) = (Latency::new(), 0, 0);
    let (mut packed, mut batch) = (Vec::new(), Vec::new());
    while sent < total {
        let now = wait_until(due(sent));
        packed.clear();
        batch.clear();
        while sent < total && due(sent) <= now && (batch.len() as u64) < MOST_AT_ONCE {
            let (i, command) = get(keys, rng.next_u64());
            packed.extend(command);
            batch.push((i, due(sent)));
            sent += 1;
        }
        connection.send_packed_command(&packed)?;
        for (i, due_ns) in &batch {
            missing += u64::from(!receive(connection, keys, *i)?);
            latency.record(now_ns() - due_ns);
        }
    }
    Ok(loaded(sent, missing, (start, now_ns()), &latency))
}

/// GETs of random keys, `depth` at a time, as fast as they are answered for `seconds`, over one connection.
///
/// # Errors
/// When the connection is lost or a value is wrong.
pub fn closed_loop(
    connection: &mut Connection,
    keys: &Keys,
    depth: usize,
    seconds: f64,
    seed: u64,
) -> Result<Loaded, RedisError> {
    let mut rng = Common::of_seed(seed).rng();
    let start = now_ns();
    let end = start + seconds_to_ns(seconds);
    let (mut latency, mut missing, mut requests, mut now) = (Latency::new(), 0, 0, start);
    let (mut packed, mut batch) = (Vec::new(), Vec::new());
    while now < end {
        packed.clear();
        batch.clear();
        for _ in 0..depth.max(1) {
            let (i, command) = get(keys, rng.next_u64());
            packed.extend(command);
            batch.push(i);
        }
        let sent = now_ns();
        connection.send_packed_command(&packed)?;
        for i in &batch {
            missing += u64::from(!receive(connection, keys, *i)?);
        }
        now = now_ns();
        latency.record(now - sent);
        requests += batch.len() as u64;
    }
    Ok(loaded(requests, missing, (start, now), &latency))
}
