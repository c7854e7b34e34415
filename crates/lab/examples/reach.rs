//! How far the TLB of this machine reaches, beside what a processor's preset predicts.
//!
//! ```text
//! cargo run --release -p mega-lab --example reach -- measure 4096 > rows.json      # half a minute and 4096 MB
//! cargo run --release -p mega-lab --example reach -- table rows.json development   # a Markdown table
//! cargo run --release -p mega-lab --example reach -- table rows.json development:host=2M:memory=300   # what if
//! cargo run --release -p mega-lab --example reach -- costs                         # the calibration instead, as JSON
//! ```

use mega_lab::calibrate::predict;
use mega_lab::calibrate::{self, Reach};
use mega_sim::cost::Costs;
use mega_sim::tlb::{named, PageSize, Preset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["measure", megabytes] => {
            eprintln!("{} MHz", calibrate::mhz());
            let rows = calibrate::reach(megabytes.parse::<u64>()? << 20)?;
            eprintln!("{} MHz", calibrate::mhz());
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        ["table", file, preset] => {
            let rows: Vec<Reach> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            table(&rows, &named(preset)?);
        }
        ["costs"] => costs()?,
        _ => return Err("measure MEGABYTES, table ROWS.json PRESET, or costs".into()),
    }
    Ok(())
}

fn table(rows: &[Reach], preset: &Preset) {
    println!("| memory | pages | measured ns (lowest to highest) | predicted ns | of that translation | error |");
    println!("| ---: | --- | ---: | ---: | ---: | ---: |");
    for row in rows {
        let predicted = predict::random(preset, row.bytes, row.size, 1_000_000);
        let pages = match (row.size, row.as_asked) {
            (PageSize::Base, true) => "4 KB",
            (PageSize::Huge, true) => "2 MB",
            _ => "mixed",
        };
        let memory = match row.bytes >> 20 {
            0 => format!("{} KB", row.bytes >> 10),
            megabytes => format!("{megabytes} MB"),
        };
        let [lowest, median, highest] = row.ns;
        println!(
            "| {memory} | {pages} | {median:.1} ({lowest:.1} to {highest:.1}) | {:.1} | {:.1} | {:+.0} % |",
            predicted.ns(),
            predicted.translation_ns,
            (predicted.ns() / median - 1.0) * 100.0,
        );
    }
}

fn costs() -> Result<(), Box<dyn std::error::Error>> {
    let found = calibrate::run("this machine", "not asked", "today")?;
    for sample in &found.samples {
        let quartiles = format!("{:10.1} {:10.1} {:10.1}", sample.p25, sample.median, sample.p75);
        eprintln!("{:55} {:6} {quartiles}", sample.what, sample.samples);
    }
    for note in &found.notes {
        eprintln!("{note}");
    }
    println!("{}", found.costs.to_json());
    Costs::from_json(&found.costs.to_json())?;
    Ok(())
}
