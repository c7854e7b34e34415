//! Free memory by zone, as a table: what `frag` and `hog` found before and after.

use comfy_table::{presets, CellAlignment, Table};
use mega_cli::contiguity::percent;
use mega_cli::text::wrapped;
use mega_core::units::Bytes;
use mega_linux::blocks::fragmentation::{Fragmentation, IndexSource};

/// One table of several states by zone, each under its name.
pub fn table(states: &[(&str, &Fragmentation)]) -> String {
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
    text += &wrapped("  ", &note);
    text += "\n";
    text
}
