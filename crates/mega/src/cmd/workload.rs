//! `mega workload`: run one of the lab's workloads.

use anyhow::Result;

use crate::args::WorkloadArgs;
use crate::exit::Failure;

/// Runs it.
pub fn run(args: &WorkloadArgs) -> Result<()> {
    let Some((name, rest)) = args.args.split_first() else {
        return Err(Failure::usage("which workload?"));
    };
    Ok(mega_lab::workload::run(name, rest)?)
}
