//! Where `mega run` keeps profiles.

use std::path::PathBuf;

use anyhow::{Context, Result};
use mega_linux::agent::profiles::Profiles;

/// Where the folder is, if it is said.
const VARIABLE: &str = "MEGA_PROFILES";
/// Root's folder.
const OF_ROOT: &str = "/var/lib/mega/profiles";

/// The one that `MEGA_PROFILES` names; else root's, or the user's state folder.
///
/// # Errors
/// No folder is known.
pub fn own() -> Result<Profiles> {
    let given = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let in_state = |state: PathBuf| state.join("mega/profiles");
    let folder = match given(VARIABLE) {
        Some(folder) => Some(folder),
        None if rustix::process::geteuid().is_root() => Some(OF_ROOT.into()),
        None => given("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| given("HOME").map(|home| home.join(".local/state")))
            .map(in_state),
    };
    let folder = folder.with_context(|| {
        format!("there is no folder for profiles: none of {VARIABLE}, XDG_STATE_HOME and HOME is set")
    })?;
    Ok(Profiles::at(folder))
}
