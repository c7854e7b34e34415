//! Options of `mega run` about the agent.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::Args;
use mega_range::intent::Intent;

/// Whether the command gets the agent, and for what.
#[derive(Debug, Clone, Default, Args)]
pub struct AgentOptions {
    /// Preload the agent with another policy than auto, too, and say it where that cannot be done
    #[arg(long, conflicts_with_all = ["no_agent", "dry_run"])]
    pub agent: bool,

    /// No agent inside the command (default: policy auto preloads one, which maps huge pages from inside as the manager does from outside)
    #[arg(long)]
    pub no_agent: bool,

    /// Only preload the agent and become the command: no manager, no BPF, no privilege
    #[arg(long, conflicts_with_all = [
        "agent", "no_agent", "policy", "set", "duration", "fault_size", "journal", "json", "dry_run", "scanner", "verbose",
    ])]
    pub agent_only: bool,

    /// Begin as if nothing were known of the program, and keep nothing of this run (see `mega profile`)
    #[arg(long)]
    pub no_profiles: bool,

    #[command(flatten)]
    pub intent: For,
}

/// What matters, for policy auto and for the agent.
#[derive(Debug, Clone, Default, Args)]
pub struct For {
    /// What matters for the program
    #[arg(long = "for", value_name = "INTENT", value_parser = intents())]
    pub intent: Option<Intent>,
}

fn intents() -> impl TypedValueParser<Value = Intent> {
    let names = PossibleValuesParser::new(Intent::ALL.map(Intent::name));
    names.map(|name| Intent::by_name(name.as_bytes()).unwrap_or_default())
}
