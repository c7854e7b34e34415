//! `mega workload`: run one of the lab's workloads.

use std::process::ExitCode;

use crate::args::WorkloadArgs;
use mega_cli::exit::{say, Failure};

/// Runs it. The status says how it failed: 2 for wrong usage, 3 for corrupt memory, 1 otherwise.
pub fn run(args: &WorkloadArgs) -> ExitCode {
    let Some((name, rest)) = args.args.split_first() else {
        return Failure::status(Err(Failure::usage("which workload?")), Failure::FAILED);
    };
    match mega_lab::workload::run(name, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = error.exit_code();
            say(&error.into());
            ExitCode::from(status)
        }
    }
}
