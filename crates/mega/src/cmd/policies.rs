//! `mega policies`: the policies and their parameters.

use std::io::Write;

use anyhow::Result;
use mega_core::policy::{by_name, POLICIES};
use serde_json::json;

use crate::args::PoliciesArgs;
use mega_cli::exit::Failure;
use mega_cli::text::wrapped;

/// Lists them.
pub fn run(args: &PoliciesArgs) -> Result<()> {
    let wanted: Vec<_> = POLICIES
        .iter()
        .filter(|(name, _)| args.name.as_deref().is_none_or(|wanted| wanted == *name))
        .filter_map(|(name, about)| Some((*name, *about, by_name(name)?)))
        .collect();
    if wanted.is_empty() {
        let name = args.name.as_deref().unwrap_or_default();
        return Err(Failure::usage(format!(
            "no policy '{name}'; `mega policies` lists them"
        )));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let list: Vec<_> = wanted
            .iter()
            .map(|(name, about, policy)| {
                let params: Vec<_> = policy
                    .params()
                    .iter()
                    .map(|p| json!({"name": p.name, "default": p.default, "meaning": p.meaning}))
                    .collect();
                json!({"name": name, "about": about, "params": params})
            })
            .collect();
        writeln!(out, "{}", json!({"schema": 1, "policies": list}))?;
        return Ok(());
    }
    for (name, about, policy) in wanted {
        writeln!(out, "{name}\n{}", wrapped("    ", about))?;
        for param in policy.params() {
            writeln!(out, "    --set {}={}", param.name, param.default)?;
            writeln!(out, "{}", wrapped("        ", param.meaning))?;
        }
    }
    Ok(())
}
