//! The demonstration's table and its one sentence.

use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;

use super::{Measured, Variant};

/// Variants side by side.
pub fn table(measured: &[Measured]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED);
    let head = std::iter::once(String::new()).chain(measured.iter().map(|m| m.variant.name().to_string()));
    table.set_header(head);
    let mut row = |name: String, cell: &dyn Fn(&Measured) -> String| {
        table.add_row(std::iter::once(name).chain(measured.iter().map(cell)));
    };
    let latency_of = measured.first().map_or("", |m| m.latency_of);
    row("operations/s, settled".into(), &|m| {
        format!("{:.2} M", m.ops_per_s / 1e6)
    });
    for (i, percentile) in ["p50", "p99", "p99.9"].iter().enumerate() {
        row(format!("{latency_of} {percentile}"), &|m| micros(m.latency_ns[i]));
    }
    row("time to fill".into(), &|m| format!("{:.1} s", m.fill_ns as f64 / 1e9));
    row("resident".into(), &|m| Bytes(m.rss_bytes).to_string());
    row("in huge pages".into(), &|m| Bytes(m.huge_bytes).to_string());
    row("wasted in huge pages".into(), &|m| Bytes(m.waste_bytes).to_string());
    row("every value right".into(), &|m| {
        if m.verified { "yes" } else { "NO" }.to_string()
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// What was seen, whatever it was.
pub fn sentence(measured: &[Measured]) -> String {
    let find = |variant| measured.iter().find(|m| m.variant == variant);
    let (Some(base), Some(stock), Some(mega)) = (find(Variant::Base), find(Variant::Stock), find(Variant::Mega)) else {
        return "Not every variant was measured.".to_string();
    };
    let over = |a: f64, b: f64| a / b.max(1e-9);
    let tail = match mega.latency_of {
        "page fault" => "the 99.9th percentile of its page faults",
        _ => "the 99.9th percentile of its request latency",
    };
    let trim = find(Variant::Trim).map_or(String::new(), |trim| {
        format!(
            " With stock THP trimmed: {:.2} times the operations of stock THP with {} resident.",
            over(trim.ops_per_s, stock.ops_per_s),
            Bytes(trim.rss_bytes)
        )
    });
    format!(
        "Managed, the store did {:.2} times the operations of base pages ({:.2} times those of stock THP) with {} \
         resident where stock THP took {} and base pages {}; {tail} was {}, against {} under stock THP.{trim}",
        over(mega.ops_per_s, base.ops_per_s),
        over(mega.ops_per_s, stock.ops_per_s),
        Bytes(mega.rss_bytes),
        Bytes(stock.rss_bytes),
        Bytes(base.rss_bytes),
        micros(mega.latency_ns[2]),
        micros(stock.latency_ns[2]),
    )
}

/// Microseconds for people.
pub fn micros(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 10.0 {
        format!("{us:.1} us")
    } else {
        format!("{us:.0} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(variant: Variant, ops_per_s: f64, rss_gib: u64) -> Measured {
        Measured {
            variant,
            ops_per_s,
            latency_of: "page fault",
            latency_ns: [900, 2_000, 120_000],
            fill_ns: 1_500_000_000,
            rss_bytes: rss_gib << 30,
            huge_bytes: 0,
            waste_bytes: 0,
            verified: true,
        }
    }

    #[test]
    fn the_table_fits_eighty_columns_and_the_sentence_says_what_was_measured() {
        let all = [
            measured(Variant::Base, 1e6, 3),
            measured(Variant::Stock, 2e6, 6),
            measured(Variant::Mega, 1.9e6, 3),
            measured(Variant::Trim, 2e6, 3),
        ];
        let text = table(&all);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = sentence(&all);
        assert!(
            text.contains("1.90 times the operations of base pages (0.95 times those of stock THP)"),
            "{text}"
        );
        assert!(sentence(&all[..2]).contains("Not every"));
    }
}
