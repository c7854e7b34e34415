//! `mega demo`: the main job, on base pages, on stock huge pages and managed, side by side.

use std::io::Write;

use anyhow::{Context, Result};
use mega_linux::proc::ProcRoot;
use serde_json::json;

use crate::args::DemoArgs;
use crate::demo::{picture, report, store, Measured, Sizes, Variant};
use crate::manage::{open_knobs, require};

/// Free memory that is kept warm.
const KEPT_WARM_BYTES: u64 = 1 << 30;

/// Runs the variants one after the other and reports.
pub fn run(args: &DemoArgs) -> Result<()> {
    require(false).context("the demonstration manages a program")?;
    let sizes = fit(Sizes {
        dense_mib: args.dense_mib,
        sparse_mib: if args.redis { 0 } else { args.sparse_mib },
        seconds: args.seconds,
    })?;
    // Promotions take blocks that nobody has used for a while. On a virtual machine the host may have taken their memory back, which
    // would make the demonstration one of the host. In every variant, so that it is the same for all.
    let _warm = mega_lab::warm::KeepWarm::start(KEPT_WARM_BYTES);
    let mut measured = Vec::new();
    for (i, variant) in Variant::ALL.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, Variant::ALL.len(), variant.describe());
        let mut knobs = open_knobs()?;
        let enabled = knobs.root().thp("enabled");
        let mode = if variant.thp_always() { "always" } else { "madvise" };
        knobs
            .set(&enabled, mode)
            .context("cannot set transparent_hugepage/enabled for this variant")?;
        let one = if args.redis {
            crate::demo::redis::run(*variant, &sizes)
        } else {
            store::run(*variant, &sizes)
        };
        knobs
            .restore()
            .context("cannot put the machine's settings back; `mega off` tries again")?;
        measured.push(one.with_context(|| format!("variant '{}'", variant.name()))?);
    }
    if let Some(path) = &args.output {
        let what = if args.redis { "Redis" } else { "the embedded store" };
        let title = format!(
            "{what}, {} MB dense and hot, {} MB sparse",
            sizes.dense_mib, sizes.sparse_mib
        );
        std::fs::write(path, picture::svg(&measured, &title))
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("mega: drawn into {}", path.display());
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let variants: Vec<_> = measured.iter().map(Measured::to_json).collect();
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "kind": "demo", "redis": args.redis, "variants": variants})
        )?;
    } else {
        write!(out, "{}", report::table(&measured))?;
        writeln!(out, "\n{}", report::sentence(&measured))?;
    }
    Ok(())
}

/// The sizes, smaller where the machine has no room for them: a demonstration must not push anyone out of memory.
fn fit(mut sizes: Sizes) -> Result<Sizes> {
    let info = mega_linux::proc::meminfo::read(&ProcRoot::default()).context("cannot read how much memory there is")?;
    let room_mib = (info.available_bytes.unwrap_or(0) >> 20) / 2;
    let wanted = sizes.dense_mib + sizes.sparse_mib;
    if wanted > room_mib {
        sizes.dense_mib = (sizes.dense_mib * room_mib / wanted).max(64);
        sizes.sparse_mib = sizes.sparse_mib * room_mib / wanted;
        eprintln!(
            "mega: smaller than asked for, to leave half of the memory free: {} MB dense, {} MB sparse",
            sizes.dense_mib, sizes.sparse_mib
        );
    }
    Ok(sizes)
}
