//! A real Redis in one variant. Redis does not time its page faults, so latency is that of requests at a fixed rate.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_lab::redis::keys::Keys;
use mega_lab::redis::load::{closed_loop, open_loop};
use mega_lab::redis::{Server, ServerOptions};
use mega_lab::warm;

use super::{memory_of, Measured, Sizes, Variant};

const VALUE_BYTES: usize = 4096;
/// Requests per second for the latency figures: well below what one connection can do.
const RATE: f64 = 10_000.0;

/// Runs it.
pub fn run(variant: Variant, sizes: &Sizes) -> Result<Measured> {
    warm::warm((sizes.dense_mib * 5 / 4) << 20).context("cannot warm memory")?;
    let server = Server::start(&ServerOptions {
        prefix: variant.prefix()?,
        ..ServerOptions::default()
    })?;
    let mut connection = server.connect()?;
    let keys = Keys {
        count: (sizes.dense_mib << 20) / VALUE_BYTES as u64,
        value_bytes: VALUE_BYTES,
        seed: 1,
    };
    eprintln!("      filling {} keys of 4 KB", keys.count);
    let began = Instant::now();
    keys.load(&mut connection)?;
    let fill_ns = began.elapsed().as_nanos() as u64;
    // Reads keep memory in use while the policy looks.
    let settle = Duration::from_secs(variant.seconds(sizes.seconds));
    eprintln!("      serving for {} s", settle.as_secs());
    closed_loop(&mut connection, &keys, 16, settle.as_secs_f64(), 2)?;
    let [rss_bytes, huge_bytes, waste_bytes] = memory_of(server.pid())?;
    let throughput = closed_loop(&mut connection, &keys, 16, 5.0, 3)?;
    let latency = open_loop(&mut connection, &keys, RATE, 5.0, 4)?.latency;
    let verified = keys.verify(&mut connection, |_| true)?.present == keys.count;
    drop(connection);
    server.stop()?;
    Ok(Measured {
        variant,
        ops_per_s: throughput.requests_per_s,
        latency_of: "GET at 10,000/s",
        latency_ns: [latency.p50_ns, latency.p99_ns, latency.p999_ns],
        fill_ns,
        rss_bytes,
        huge_bytes,
        waste_bytes,
        verified,
    })
}
