//! What a command is started with so that it loads the agent.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mega_cli::mosaic::target;
use mega_linux::agent::profiles::Profiles;
use mega_linux::sys::User;
use mega_range::intent::Intent;

use super::library;
use super::pages::Pages;

const PRELOAD: &str = "LD_PRELOAD";
const SWITCH: &str = "MEGA_AGENT";
const INTENT: &str = "MEGA_AGENT_FOR";
const CONTENTS: &str = "MEGA_AGENT_CONTENTS";
const STATUS: &str = "MEGA_AGENT_STATUS";
const PROFILES: &str = "MEGA_AGENT_PROFILES";

/// Variables of the command's environment.
pub type Environment = Vec<(&'static str, OsString)>;

/// The library, where it is there and the command's user may load it.
///
/// # Errors
/// Why not.
pub fn library_for(user: Option<&User>) -> Result<PathBuf> {
    let library = library::find()?;
    user.map_or(Ok(()), |user| library::check_readable(&library, user))?;
    Ok(library)
}

/// What the agent was told of our own processes, where mega itself was started with one.
#[must_use]
pub fn intent_of_ours() -> Option<Intent> {
    Intent::by_name(std::env::var_os(INTENT)?.as_encoded_bytes())
}

/// This program, which the command's user must be able to run if the command is static.
///
/// # Errors
/// The user may not read it.
pub fn us_for(user: Option<&User>) -> Result<PathBuf> {
    let mega = std::env::current_exe().context("cannot locate this program")?;
    user.map_or(Ok(()), |user| library::check_readable(&mega, user))?;
    Ok(mega)
}

/// Whether a command with these variables gets an agent.
#[must_use]
pub fn has_agent(environment: &Environment) -> bool {
    environment.iter().any(|(name, _)| *name == PRELOAD)
}

/// The agent reads no contents of huge pages.
pub fn without_contents(environment: &mut Environment) {
    environment.push((CONTENTS, "off".into()));
}

/// A static command has no loader that would obey the environment: it is started by ourselves, as `mega run --agent-only` does it.
pub fn begin_by_us(command: &mut Vec<OsString>, environment: &mut Environment) {
    let Ok(mega) = us_for(None) else { return };
    // Not into ourselves.
    environment.retain(|(name, _)| *name != PRELOAD);
    let words = target::BEGIN.map(OsString::from);
    command.splice(0..0, std::iter::once(mega.into_os_string()).chain(words));
}

/// With this agent.
#[must_use]
pub fn with(library: &Path, intent: Option<Intent>, pages: Option<&Pages>, profiles: Option<&Profiles>) -> Environment {
    let mut environment = vec![
        (PRELOAD, library::appended(std::env::var_os(PRELOAD), library)),
        (SWITCH, "on".into()),
    ];
    environment.extend(intent.map(|intent| (INTENT, intent.name().into())));
    environment.extend(profiles.map(|profiles| (PROFILES, profiles.folder().into())));
    environment.extend(pages.map(|pages| (STATUS, pages.template())));
    environment
}

/// Without: one that we were started with ourselves stays out.
#[must_use]
pub fn without() -> Environment {
    match std::env::var_os(PRELOAD) {
        Some(list) if library::has_agent(&list) => vec![(SWITCH, "off".into())],
        _ => Vec::new(),
    }
}
