//! How contiguous free memory is, for people: what `frag` and `hog` say of it.

use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;
use mega_linux::contiguity::{Contiguity, IndexSource};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A share with one digit after the point.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The state in a few words.
pub fn brief(state: &Contiguity) -> String {
    format!(
        "{} free, {} blocks of 2 MB, {} unusable at order 9",
        Bytes(state.free_bytes),
        state.free_blocks,
        percent(state.unusable_share)
    )
}

/// One table of several states by zone, each under its name.
pub fn table(states: &[(&str, &Contiguity)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "  free memory",
        "node, zone",
        "free",
        "2 MB blocks",
        "unusable",
        "index",
    ]);
    for (name, state) in states {
        let mut name = format!("  {name}");
        for zone in &state.zones {
            table.add_row([
                std::mem::take(&mut name),
                format!("{} {}", zone.node, zone.name),
                Bytes(zone.free_bytes).to_string(),
                zone.free_blocks.to_string(),
                percent(zone.unusable_share),
                format!("{:.3}", zone.fragmentation_index),
            ]);
        }
        table.add_row([
            name,
            "all".to_string(),
            Bytes(state.free_bytes).to_string(),
            state.free_blocks.to_string(),
            percent(state.unusable_share),
            String::new(),
        ]);
        if let Some(bytes) = state.percpu_bytes {
            let on_lists = Bytes(bytes).to_string();
            table.add_row(["", "on CPU lists", &on_lists, "", "", ""]);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_string() + "\n").collect();
    let source = match states.last().map(|(_, state)| state.index_source) {
        Some(IndexSource::Debugfs) => "from the kernel's extfrag",
        _ => "computed from buddyinfo as the kernel does",
    };
    let note = format!("order 9, {source}; index: -1 a request succeeds, near 0 memory is short, near 1 fragmented");
    text += &crate::text::wrapped("  ", &note);
    text += "\n";
    text
}

/// Whether we have been asked to stop (see `stop_on_signals`); waits for that at most `wait`.
pub fn stopped(stop: &OwnedFd, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).unwrap_or_default();
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    // A signal interrupts the wait and has made it readable by then: the next call sees it.
    poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0)
}
