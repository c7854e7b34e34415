//! The agent inside the measured program: libmega_agent.so, preloaded.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use mega_core::range::intent::Intent;

/// Its file.
const LIBRARY: &str = "libmega_agent.so";
/// Where it is, if at none of the usual places.
const VARIABLE: &str = "MEGA_AGENT_LIBRARY";
/// Beside target/release, where `cargo build --profile agent` leaves it; beside `mega`; where it is installed.
const FOLDERS: [&str; 4] = ["../agent", ".", "../lib", "../lib/mega"];

/// An agent with its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// `--for` of `mega run`: balanced, latency, throughput, memory.
    pub intent: Option<String>,
    /// Its program ran before: there is a profile, as under `mega run` from the second run on.
    pub is_known: bool,
}

/// Whether an intent has this name.
pub(super) fn check_intent(name: &str) -> Result<(), String> {
    match Intent::by_name(name.as_bytes()) {
        Some(_) => Ok(()),
        None => Err(format!("no intent '{name}': balanced, latency, throughput or memory")),
    }
}

/// The library: where MEGA_AGENT_LIBRARY says, else near `mega`.
///
/// # Errors
/// It is not there: where it was looked for, and how to build it.
pub fn library(mega: &Path) -> Result<PathBuf, String> {
    find(mega, std::env::var_os(VARIABLE).as_deref())
}

fn find(mega: &Path, stated: Option<&OsStr>) -> Result<PathBuf, String> {
    let places: Vec<PathBuf> = match stated.filter(|path| !path.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let folder = mega.parent().unwrap_or(Path::new("."));
            FOLDERS.iter().map(|near| folder.join(near).join(LIBRARY)).collect()
        }
    };
    let found = places.iter().find(|path| path.is_file());
    let found = found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        format!(
            "no {}; build it (cargo build --profile agent -p mega-agent) or set {VARIABLE}",
            places.join(", no ")
        )
    })?;
    let is_separator = |c: char| matches!(c, ':' | ' ' | '\n' | '\t');
    match found.to_str().is_some_and(|path| !path.contains(is_separator)) {
        true => Ok(found),
        false => Err(format!(
            "the loader cannot preload '{}': its path contains a colon or a space",
            found.display()
        )),
    }
}

impl Agent {
    /// The environment of a program whose processes write a status page each to `agent-PID` in `folder`, and whose profiles are in another
    /// one, if there are any. Libraries preloaded already stay, before ours.
    #[must_use]
    pub fn environment(
        &self,
        library: &Path,
        folder: &Path,
        profiles: Option<&Path>,
        preloaded: Option<&OsStr>,
    ) -> Vec<(OsString, OsString)> {
        let mut list = preloaded.unwrap_or_default().to_owned();
        if !list.is_empty() {
            list.push(":");
        }
        list.push(library);
        let mut made = vec![
            ("LD_PRELOAD".into(), list),
            ("MEGA_AGENT_STATUS".into(), folder.join("agent-%").into()),
        ];
        made.extend(profiles.map(|folder| ("MEGA_AGENT_PROFILES".into(), folder.into())));
        made.extend(
            self.intent
                .iter()
                .map(|intent| ("MEGA_AGENT_FOR".into(), intent.into())),
        );
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_near_mega_and_where_it_is_missing_one_reads_how_to_build_it() {
        let folder = tempfile::tempdir().unwrap();
        let mega = folder.path().join("release/mega");
        for name in ["release", "agent"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let why = find(&mega, None).unwrap_err();
        assert!(why.contains("--profile agent -p mega-agent"), "{why}");
        let beside = folder.path().join("release").join(LIBRARY);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(&mega, None).unwrap(), beside.canonicalize().unwrap());
        // The one of its own profile is the one that is shipped.
        let built = folder.path().join("agent").join(LIBRARY);
        std::fs::write(&built, "").unwrap();
        assert_eq!(
            find(&mega, Some(OsStr::new(""))).unwrap(),
            built.canonicalize().unwrap()
        );
        assert!(find(&mega, Some(OsStr::new("/nowhere/x.so")))
            .unwrap_err()
            .contains("/nowhere/x.so"));
        let spaced = folder.path().join("a b.so");
        std::fs::write(&spaced, "").unwrap();
        assert!(find(&mega, Some(spaced.as_os_str())).unwrap_err().contains("space"));
    }

    #[test]
    fn it_is_preloaded_after_what_is_preloaded_already() {
        let of = |agent: Agent, preloaded: Option<&str>| {
            let [library, folder, profiles] = ["/lib/a.so", "/tmp/x", "/tmp/p"].map(Path::new);
            agent.environment(
                library,
                folder,
                agent.is_known.then_some(profiles),
                preloaded.map(OsStr::new),
            )
        };
        let made = of(Agent::default(), None);
        assert_eq!(made[0], ("LD_PRELOAD".into(), "/lib/a.so".into()));
        assert_eq!(made[1], ("MEGA_AGENT_STATUS".into(), "/tmp/x/agent-%".into()));
        assert_eq!(made.len(), 2);
        let intent = Some("latency".to_string());
        let agent = Agent { intent, is_known: true };
        let made = of(agent, Some("/lib/other.so"));
        assert_eq!(made[0].1, "/lib/other.so:/lib/a.so");
        assert_eq!(made[2], ("MEGA_AGENT_PROFILES".into(), "/tmp/p".into()));
        assert_eq!(made[3], ("MEGA_AGENT_FOR".into(), "latency".into()));
    }
}
