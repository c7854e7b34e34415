//! How far the TLB of this machine reaches, beside what a processor's preset predicts; as a Markdown table.
//!
//! ```text
//! cargo run --release -p mega-sim --example reach -- [preset [largest MB]]       # development, 4096
//! cargo run --release -p mega-sim --example reach -- costs                       # the calibration instead, as JSON
//! ```

use mega_sim::tlb::{find, predict, PageSize, Preset};
use mega_sim::{calibrate, cost};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "development".into());
    if name == "costs" {
        let found = calibrate::run("this machine", "not asked", "today")?;
        for sample in &found.samples {
            eprintln!(
                "{:55} {:6} {:10.1} {:10.1} {:10.1}",
                sample.what, sample.samples, sample.p25, sample.median, sample.p75
            );
        }
        for note in &found.notes {
            eprintln!("{note}");
        }
        println!("{}", found.costs.to_json());
        cost::Costs::from_json(&found.costs.to_json())?;
        return Ok(());
    }
    let preset: Preset = *find(&name).ok_or("no such preset")?;
    let largest: u64 = arguments.next().map_or(Ok(4096), |mb| mb.parse())?;
    let mhz = calibrate::mhz();
    println!("{} at {} MHz; this machine runs at {mhz} MHz", preset.name, preset.mhz);
    println!("| memory | pages | measured ns (lowest, highest of 5) | predicted ns | of that translation | error |");
    println!("| ---: | --- | ---: | ---: | ---: | ---: |");
    let rows = calibrate::reach(largest << 20)?;
    for row in &rows {
        let predicted = predict::random(&preset, row.bytes, row.size, 1_000_000);
        let pages = match (row.size, row.as_asked) {
            (PageSize::Base, true) => "4 KB",
            (PageSize::Huge, true) => "2 MB",
            _ => "mixed",
        };
        let memory = if row.bytes < 1 << 20 {
            format!("{} KB", row.bytes >> 10)
        } else {
            format!("{} MB", row.bytes >> 20)
        };
        println!(
            "| {memory} | {pages} | {:.1} ({:.1}, {:.1}) | {:.1} | {:.1} | {:+.0} % |",
            row.ns[1],
            row.ns[0],
            row.ns[2],
            predicted.ns(),
            predicted.translation_ns,
            (predicted.ns() / row.ns[1] - 1.0) * 100.0,
        );
    }
    Ok(())
}
