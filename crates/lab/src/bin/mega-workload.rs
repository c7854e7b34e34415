//! `mega-workload NAME --key value…`: one workload of the lab as a process of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    if name.is_empty() || name == "--help" || name == "-h" {
        for entry in mega_lab::workload::LIST {
            println!("{:8} {}", entry.name, entry.help);
        }
        return if name.is_empty() {
            ExitCode::from(2)
        } else {
            ExitCode::SUCCESS
        };
    }
    match mega_lab::workload::run(&name, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mega-workload {name}: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
