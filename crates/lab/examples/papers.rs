//! Runs the papers' experiments in simulation and writes what `docs/simulator-experiments.md` is made of:
//!
//! ```text
//! cargo run --release -p mega-lab --example papers -- OUT [--scale 1] [--seed 1] [--threads 1] [NAME…]
//! ```
//!
//! `OUT/NAME.json` is each experiment's record, `OUT/tables.md` the tables side by side, `OUT/orderings.json` and `OUT/orderings.md` the published
//! comparisons. Records that are there are kept and not run again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use mega_lab::result::Record;
use mega_lab::simulated::{all, count, side_by_side, Experiment, Progress};

struct Args {
    out: PathBuf,
    scale: f64,
    seed: u64,
    threads: usize,
    names: Vec<String>,
}

fn args() -> Result<Args, String> {
    let mut words = std::env::args().skip(1);
    let out = words.next().ok_or("where to write is missing")?;
    let mut args = Args {
        out: out.into(),
        scale: 1.0,
        seed: 1,
        threads: 1,
        names: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--scale" => args.scale = value()?.parse().map_err(|e| format!("--scale: {e}"))?,
            "--seed" => args.seed = value()?.parse().map_err(|e| format!("--seed: {e}"))?,
            "--threads" => args.threads = value()?.parse().map_err(|e| format!("--threads: {e}"))?,
            _ => args.names.push(word),
        }
    }
    Ok(args)
}

fn run(experiment: &Experiment, args: &Args) -> Result<Record, Box<dyn std::error::Error>> {
    let path = args.out.join(format!("{}.json", experiment.name));
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Ok(serde_json::from_str(&text)?);
    }
    let began = Instant::now();
    let tell = |progress: &Progress<'_>| match progress {
        Progress::Begins { case, system, number, of } => {
            eprintln!("{:7.1} s  {} of {of}: {case}, {system}", began.elapsed().as_secs_f64(), number + 1);
        }
        Progress::Ended { run, number } => {
            let accesses = run.values.get("tlb_accesses").copied().unwrap_or(0.0);
            let (real, simulated) = (began.elapsed().as_secs_f64(), run.seconds);
            let n = number + 1;
            eprintln!("{real:7.1} s  {n} ended: {simulated:.1} simulated s, {:.0} M accesses, {:?}", accesses / 1e6, run.outcome);
        }
    };
    eprintln!("{}", experiment.name);
    let record = experiment.run(args.scale, args.seed, args.threads, &tell);
    std::fs::write(&path, serde_json::to_string(&record)?)?;
    eprintln!("{}: {:.1} s", experiment.name, began.elapsed().as_secs_f64());
    Ok(record)
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = args()?;
    std::fs::create_dir_all(&args.out)?;
    let mut records = Vec::new();
    for experiment in all() {
        let wanted = args.names.is_empty() || args.names.iter().any(|name| name == experiment.name);
        if wanted {
            records.push(run(experiment, &args)?);
        }
    }
    let tables: Vec<String> = records.iter().map(side_by_side).collect();
    write(&args.out.join("tables.md"), &tables.join("\n"))?;
    let orderings = count(&records);
    write(&args.out.join("orderings.json"), &serde_json::to_string_pretty(&orderings)?)?;
    write(&args.out.join("orderings.md"), &orderings.text())?;
    println!("{}", orderings.text());
    Ok(())
}
