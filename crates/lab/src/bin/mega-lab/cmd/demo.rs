//! `mega demo`: the main job, one experiment of the lab: a store on base pages, on stock huge pages, and under `auto`.

use anyhow::Result;
use mega_lab::experiment::demo::answers;

use crate::args::DemoArgs;
use crate::bench;
use crate::cmd::bench::one;

/// Runs it once and ends with the path of its report.
pub fn run(args: &DemoArgs) -> Result<()> {
    let name = if args.redis { "demo-redis" } else { "demo" };
    let asked = bench::named(name, &args.common)?.answered_by(answers);
    one(&asked, &args.common, args.common.rounds.unwrap_or(1)).map(drop)
}
