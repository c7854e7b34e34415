//! `mega config`: check, show and describe the daemon's configuration and its presets.

use std::io::Write;

use anyhow::Result;
use mega_cli::exit::{tell, Failure};
use mega_core::presets::{by_name, PRESETS};
use serde_json::json;

use crate::args::{ConfigAction, ConfigArgs, SourceArgs};
use crate::service::config::Config;
use crate::service::describe::{document, hint};
use crate::service::{presets, Source};

/// Does it.
pub fn run(args: &ConfigArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &args.action {
        ConfigAction::Check { file, source } => {
            let source = file.clone().map_or_else(|| source.source(), Source::File);
            let config = load(&source)?;
            writeln!(
                out,
                "{} files, {} rules: no mistake",
                config.files.len(),
                config.rules.len()
            )?;
        }
        ConfigAction::Show { source, json } => {
            let config = load(&source.source())?;
            match json {
                true => writeln!(out, "{}", config.to_json())?,
                false => writeln!(out, "{}", config.to_text())?,
            }
        }
        ConfigAction::Presets { name, json } => {
            let wanted = match name {
                Some(name) => std::slice::from_ref(by_name(name).ok_or_else(|| {
                    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
                    let hint = hint(name, &names);
                    Failure::usage(format!("no preset '{name}'{hint} (there are: {})", names.join(", ")))
                })?),
                None => PRESETS,
            };
            match json {
                true => {
                    let all: Vec<_> = wanted.iter().map(presets::json).collect();
                    writeln!(out, "{}", json!({"schema": 1, "presets": all}))?;
                }
                false => {
                    let all: Vec<_> = wanted.iter().map(presets::text).collect();
                    write!(out, "{}", all.join("\n"))?;
                }
            }
        }
        ConfigAction::Describe { presets: false } => write!(out, "{}", document())?,
        ConfigAction::Describe { presets: true } => write!(out, "{}", presets::document())?,
    }
    Ok(())
}

impl SourceArgs {
    /// Where to read.
    pub fn source(&self) -> Source {
        match &self.config {
            Some(file) => Source::File(file.clone()),
            None => Source::System(self.root.clone()),
        }
    }
}

/// The configuration; its warnings and mistakes go to standard error.
pub fn load(source: &Source) -> Result<Config> {
    match Config::load(source) {
        Ok(config) => {
            config
                .warnings
                .iter()
                .for_each(|warning| tell(&format!("mega: warning: {warning}")));
            Ok(config)
        }
        Err(problems) => {
            problems.iter().for_each(|problem| tell(&format!("mega: {problem}")));
            Err(Failure::said())
        }
    }
}
