//! `mega bench soak`: hours of everything at once.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use mega_cli::hand_over;
use mega_cli::settings::{open_knobs, require};
use mega_lab::measure::machine;
use mega_lab::report::scale::{duration_text, value_text};
use mega_lab::result::Unit;
use mega_lab::soak::{self, Plan, Sample, Soak};
use mega_linux::proc::ProcRoot;

use crate::args::BenchOptions;
use crate::bench::{settings, stop};

/// Time at scale 1.
const TIME: Duration = Duration::from_secs(2 * 3600);
/// 450 MB when all are there.
const KEYS: u32 = 200_000;

/// Runs it, prints a line for each look, and what was compared at the end; keeps the record.
pub fn run(args: &BenchOptions) -> Result<()> {
    require(false).context("a daemon manages programs")?;
    open_knobs()?
        .recover()
        .context("cannot put back what an earlier run left behind")?;
    let plan = Plan {
        mega: hand_over::mega()?,
        lab: std::env::current_exe().context("cannot find our own program")?,
        time: TIME.mul_f64(args.scale.unwrap_or(1.0)),
        keys: KEYS,
        seed: args.seed,
    };
    let stop = stop::flag()?;
    let shows = !args.quiet;
    if shows {
        eprintln!(
            "{} of load, after a minute of short daemons",
            duration_text(plan.time.as_secs_f64())
        );
        eprintln!(
            "{:>6} {:>9} {:>4} {:>6} {:>9} {:>9} {:>7} {:>8} {:>8}  storms",
            "s", "daemon", "fds", "cpu", "scan", "redis", "huge", "p50", "p99.9"
        );
    }
    let soak = soak::run(
        &plan,
        machine::describe(&ProcRoot::default()),
        settings(args.seed, 1, None),
        |sample| {
            if shows {
                line(sample);
            }
        },
        || stop.load(Relaxed),
    )?;
    let text = serde_json::to_string(&soak)?;
    std::fs::create_dir_all(&args.output).with_context(|| format!("cannot make {}", args.output.display()))?;
    let path = args.output.join("soak.json");
    std::fs::write(&path, format!("{text}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{text}")?,
        false => summary(&mut out, &soak)?,
    }
    if shows {
        eprintln!("record: {}", path.display());
    }
    let complaints = soak.complaints();
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

fn mb(bytes: u64) -> String {
    value_text(Unit::Bytes, bytes as f64)
}

fn time(ns: f64) -> String {
    value_text(Unit::Ns, ns)
}

fn line(sample: &Sample) {
    eprintln!(
        "{:>6.0} {:>9} {:>4} {:>5.2}% {:>9} {:>9} {:>6.0}% {:>8} {:>8}  {}",
        sample.seconds,
        mb(sample.daemon_bytes),
        sample.daemon_descriptors,
        sample.daemon_cpu * 100.0,
        time(sample.scan_ns),
        mb(sample.redis_bytes),
        sample.redis_huge_bytes as f64 / sample.redis_bytes.max(1) as f64 * 100.0,
        time(sample.p50_ns as f64),
        time(sample.p999_ns as f64),
        sample.storms + sample.killed,
    );
}

fn summary(out: &mut impl Write, soak: &Soak) -> Result<()> {
    writeln!(out, "{:<24} {:>12} {:>12}", "", "start", "end")?;
    for [name, start, end] in soak.rows() {
        writeln!(out, "{name:<24} {start:>12} {end:>12}")?;
    }
    writeln!(out, "{}", soak.done())?;
    Ok(())
}
