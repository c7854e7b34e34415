//! `mega hog`: allocates huge pages to exhaustion and times each allocation.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use mega_core::units::{show_duration, Bytes};
use mega_lab::contiguity::headroom::go_first;
use mega_lab::contiguity::hog::picture;
use mega_lab::contiguity::{Bin, Hog, HogOptions, HogResult, How, Latencies, ProbeOptions};
use mega_linux::knobs::thp::{self, Mode};
use mega_linux::proc::ProcRoot;

use crate::args::HogArgs;
use crate::contiguity::table;
use mega_cli::contiguity::percent;
use mega_cli::exit::tell;
use mega_cli::signals::stop_on_signals;
use mega_cli::signals::stopped;
use mega_linux::knobs::STATE_FOLDER;

/// Width of the longest bar of the histogram.
const BAR: usize = 40;

/// Allocates them and reports the latencies.
pub fn run(args: &HogArgs) -> Result<()> {
    let stop = stop_on_signals()?;
    go_first().context("cannot offer itself to the out-of-memory killer first")?;
    let options = HogOptions {
        how: if args.kernel { How::Kernel } else { args.how },
        count: args.count,
        probe: ProbeOptions {
            order: args.order,
            flags: args.flags,
        },
        base: args.base,
        state_folder: STATE_FOLDER.into(),
    };
    let root = ProcRoot::default();
    let result = Hog::run(&options, &root, &|| stopped(&stop, Duration::ZERO), &mut || ())?;
    if let Some(hint) = hint(&result, &root) {
        tell(&format!("mega: {hint}"));
    }
    if let Some(path) = &args.output {
        std::fs::write(path, picture::svg(&result)).with_context(|| format!("cannot write {}", path.display()))?;
        tell(&format!("mega: drawn into {}", path.display()));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let mut value = serde_json::to_value(&result)?;
        value["kind"] = "hog".into();
        writeln!(out, "{value}")?;
    } else {
        write!(out, "{}", report(&result))?;
    }
    Ok(())
}

/// Why there were none at all, where the settings say it.
fn hint(result: &HogResult, root: &ProcRoot) -> Option<String> {
    if result.obtained > 0 || result.how != How::Fault {
        return None;
    }
    let settings = thp::read(root).ok()?;
    let mode = settings.as_ref().map(thp::Thp::huge_page_mode);
    match mode {
        None => Some("this kernel has no transparent huge pages".to_string()),
        Some(Mode::Never) => Some("transparent_hugepage/enabled is 'never': faults give no huge pages".to_string()),
        Some(_) => None,
    }
}

fn time(ns: u64) -> String {
    show_duration(Duration::from_nanos(ns))
}

fn report(r: &HogResult) -> String {
    let what = match &r.probe {
        Some(probe) => format!(
            "{} chunks of {} by the kernel, flags {}",
            r.obtained,
            Bytes(probe.chunk_bytes()),
            probe.flags
        ),
        None => format!("{} huge pages by {}", r.obtained, r.how),
    };
    let mut text = format!(
        "{what} ({} of the memory that was free), {} not given;\nended because {}\n",
        percent(r.share_of_free),
        r.fell_back,
        r.stopped.describe()
    );
    text += &figures(if r.probe.is_some() { "chunk" } else { "huge page" }, &r.latency);
    if r.fell_back > 0 {
        text += &figures("not given", &r.fell_back_latency);
    }
    if let Some(base) = &r.base {
        text += &figures("2 MB of base pages", &base.per_2mb);
    }
    let compaction: Vec<_> = r
        .counters
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if !compaction.is_empty() {
        text += &mega_cli::text::wrapped("compaction: ", &compaction.join(", "));
        text += "\n";
    }
    let mut states = vec![("before", &r.before)];
    states.extend(r.held.as_ref().map(|held| ("with all held", held)));
    states.push(("after", &r.after));
    text + &table(&states)
}

fn figures(what: &str, l: &Latencies) -> String {
    if l.count == 0 {
        return String::new();
    }
    let mut text = format!(
        "{what}: {} times, {} to {}, mean {}, deviation {}\n",
        l.count,
        time(l.min_ns),
        time(l.max_ns),
        time(l.mean_ns as u64),
        time(l.deviation_ns as u64)
    );
    let percentiles: Vec<_> = l
        .percentiles
        .iter()
        .map(|(p, ns)| format!("p{p} {}", time(*ns)))
        .collect();
    text += &mega_cli::text::wrapped("  ", &percentiles.join(", "));
    text += "\n";
    text + &histogram(&l.histogram)
}

/// A bar for each bin; the longest is for the fullest, and what there is at all is seen.
fn histogram(bins: &[Bin]) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
    let line = |bin: &Bin| {
        let length = (bin.count as f64 / most as f64 * BAR as f64).ceil() as usize;
        format!(
            "  {:>7} - {:<7} {:>8} {}",
            time(bin.from_ns),
            time(bin.to_ns),
            bin.count,
            "#".repeat(length)
        )
    };
    bins.iter().map(|bin| line(bin).trim_end().to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_seen_where_there_is_anything_and_none_is_too_long() {
        let bin = |from_ns, count| Bin {
            from_ns,
            to_ns: from_ns * 2,
            count,
        };
        let text = histogram(&[bin(50_000, 100_000), bin(100_000, 0), bin(200_000, 1)]);
        let bars: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [BAR, 0, 1]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.starts_with("     50us - 100us     100000 ####"), "{text}");
    }

    #[test]
    fn figures_fit_eighty_columns() {
        let values: Vec<u64> = (1..100_000u64).map(|i| i * i).collect();
        let text = figures("2 MB of base pages", &Latencies::of(&values));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(figures("huge page", &Latencies::default()), "");
    }
}
