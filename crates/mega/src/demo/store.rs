//! The embedded store in one variant: a dense hot part that wants huge pages and a sparse part that must not get them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};
use mega_lab::{stats, warm};
use serde_json::Value;

use super::{memory_of, Measured, Sizes, Variant};

/// The last seconds of serving are what counts as settled.
const SETTLED: usize = 8;

/// Runs it.
pub fn run(variant: Variant, sizes: &Sizes) -> Result<Measured> {
    // Right before each variant, or the first one pays for memory that the host has to find.
    warm::warm((sizes.dense_mib + sizes.sparse_mib) << 20).context("cannot warm memory")?;
    let seconds = variant.seconds(sizes.seconds);
    let own = std::env::current_exe().context("cannot find our own program")?;
    let mut line = variant.prefix()?;
    line.push(own.into_os_string());
    for arg in [
        "workload",
        "store",
        "--wait",
        "--dense-mib",
        &sizes.dense_mib.to_string(),
        "--sparse-mib",
        &sizes.sparse_mib.to_string(),
        "--seconds",
        &seconds.to_string(),
    ] {
        line.push(arg.into());
    }
    let (name, args) = line.split_first().context("no command")?;
    let mut child = Command::new(name)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the store")?;
    let mut to_store = child.stdin.take().context("no pipe to the store")?;
    let from_store = child.stdout.take().context("no pipe from the store")?;
    let mut seen = Seen::default();
    for text in BufReader::new(from_store).lines() {
        let event: Value =
            serde_json::from_str(&text.context("the store went silent")?).context("the store said nonsense")?;
        match event["event"].as_str() {
            Some("ready") => {
                seen.ready = Some(event);
                writeln!(to_store, "go").context("the store went away")?;
            }
            Some("report") => {
                seen.ops.push(event["ops_per_s"].as_f64().unwrap_or(0.0));
                eprint!(
                    "\r      second {} of {}: {:.2} M operations/s ",
                    seen.ops.len(),
                    seconds,
                    seen.last() / 1e6
                );
                // Looked at before the last second: after it the store is gone.
                if seen.ops.len() as u64 + 2 == seconds {
                    let pid = seen.ready.as_ref().and_then(|ready| ready["pid"].as_i64());
                    seen.memory = Some(memory_of(pid.context("the store did not say its PID")? as i32)?);
                }
            }
            Some("checked") => seen.verified = event["ok"] == true,
            _ => {}
        }
    }
    eprintln!();
    let status = child.wait().context("cannot wait for the store")?;
    if !status.success() {
        bail!("the store ended with {status}");
    }
    seen.measured(variant)
}

#[derive(Default)]
struct Seen {
    ready: Option<Value>,
    ops: Vec<f64>,
    memory: Option<[u64; 3]>,
    verified: bool,
}

impl Seen {
    fn last(&self) -> f64 {
        self.ops.last().copied().unwrap_or(0.0)
    }

    fn measured(self, variant: Variant) -> Result<Measured> {
        let ready = self.ready.context("the store never was ready")?;
        let [rss_bytes, huge_bytes, waste_bytes] = self.memory.context("the store ended too soon to be looked at")?;
        let touch = |name: &str| ready["touch"][name].as_u64().unwrap_or(0);
        let settled = &self.ops[self.ops.len().saturating_sub(SETTLED)..];
        Ok(Measured {
            variant,
            ops_per_s: stats::median(settled).context("the store reported nothing")?,
            latency_of: "page fault",
            latency_ns: [touch("p50_ns"), touch("p99_ns"), touch("p999_ns")],
            fill_ns: ready["fill_ns"].as_u64().unwrap_or(0),
            rss_bytes,
            huge_bytes,
            waste_bytes,
            verified: self.verified,
        })
    }
}
