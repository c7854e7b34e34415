//! `mega daemon`: manage the machine's processes by rules.

use anyhow::Result;

use crate::args::DaemonArgs;
use crate::service::daemon;

/// Runs until a signal ends it.
pub fn run(args: &DaemonArgs) -> Result<()> {
    daemon::run(&args.source.source())
}
