//! `mega profile`: what was learned of programs in earlier runs.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use mega_cli::exit::Failure;
use mega_cli::text::printable;
use mega_core::units::{show_duration, Bytes};
use mega_linux::agent::profiles::Profile;
use mega_range::auto::Auto;
use mega_range::intent::Intent;
use mega_range::span::{PAGE, PAGES, REGION};
use mega_range::world::Conditions;
use serde_json::{json, Value};

use crate::agent::profiles;
use crate::args::{ProfileAction, ProfileArgs};

/// Lists, shows or removes them.
pub fn run(args: &ProfileArgs) -> Result<()> {
    let profiles = profiles::own()?;
    let (all, damaged) = profiles.list()?;
    let mut out = std::io::stdout().lock();
    match &args.action {
        ProfileAction::List { json: true } => {
            let list: Vec<_> = all.iter().map(to_json).collect();
            let folder = profiles.folder().display().to_string();
            writeln!(
                out,
                "{}",
                json!({"schema": 1, "folder": folder, "damaged": damaged, "profiles": list})
            )?;
        }
        ProfileAction::List { json: false } => {
            write!(out, "{}", listed(&all))?;
            if damaged > 0 {
                writeln!(
                    out,
                    "{damaged} damaged in {}: not used, and replaced by the next run",
                    profiles.folder().display()
                )?;
            }
        }
        ProfileAction::Show { program, json } => {
            for profile in chosen(&all, program)? {
                match json {
                    true => writeln!(out, "{}", to_json(profile))?,
                    false => writeln!(out, "{}", described(profile))?,
                }
            }
        }
        ProfileAction::Forget { all: true, .. } => {
            let count = profiles.forget_all()?;
            writeln!(out, "{count} forgotten")?;
        }
        ProfileAction::Forget { programs, .. } => {
            let mut wanted = Vec::new();
            for program in programs {
                wanted.extend(chosen(&all, program)?.map(|profile| profile.program));
            }
            let count = profiles.forget(wanted)?;
            writeln!(out, "{count} forgotten")?;
        }
    }
    Ok(())
}

/// Those of this name, or whose build ID begins so.
fn chosen<'a>(all: &'a [Profile], wanted: &'a str) -> Result<impl Iterator<Item = &'a Profile>> {
    let is_it = move |profile: &&Profile| {
        let id = profile.program.to_string();
        profile.shown.name == wanted || wanted.len() >= 4 && id.starts_with(&wanted.to_ascii_lowercase())
    };
    if !all.iter().any(|profile| is_it(&profile)) {
        let text = format!("nothing was learned of '{wanted}'; `mega profile list` lists what was");
        return Err(Failure::usage(text));
    }
    Ok(all.iter().filter(is_it))
}

fn regions(profile: &Profile) -> u64 {
    let density = profile.shown.density;
    u64::from(density.dense) + u64::from(density.sparse)
}

/// In percent.
fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / (whole as f64).max(1.0)
}

fn dense(profile: &Profile) -> f64 {
    share(profile.shown.density.dense.into(), regions(profile))
}

fn empty(profile: &Profile) -> f64 {
    share(profile.shown.density.holes.into(), regions(profile) * u64::from(PAGES))
}

fn ago(profile: &Profile) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago = now.saturating_sub(Duration::from_secs(profile.used));
    match ago.as_secs() {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", show_duration(Duration::from_secs(seconds))),
    }
}

fn listed(all: &[Profile]) -> String {
    if all.is_empty() {
        return "nothing was learned yet: `mega run` does, of programs that fill 8 MB and more\n".to_owned();
    }
    let mut text = format!(
        "{:16}  {:15}  {:>5}  {:>12}  {:>9}  {:>6}  {:>6}\n",
        "BUILD ID", "PROGRAM", "RUNS", "LAST", "RESIDENT", "DENSE", "EMPTY"
    );
    for profile in all {
        text += &format!(
            "{:16}  {:15}  {:>5}  {:>12}  {:>9}  {:>5.1}%  {:>5.1}%\n",
            profile.program.to_string(),
            printable(&profile.shown.name),
            profile.runs,
            ago(profile),
            Bytes(profile.shown.resident).to_string(),
            dense(profile),
            empty(profile),
        );
    }
    text
}

/// How much the next run has advised at birth before it has shown anything.
fn at_birth(profile: &Profile) -> u64 {
    let mut auto = Auto::new();
    auto.begin(Intent::Balanced, profile.shown.density);
    let births = auto.births(&Conditions::default());
    births.resident_bytes / mega_range::birth::UNPROBED_PART
}

fn described(profile: &Profile) -> String {
    let density = profile.shown.density;
    let next = match at_birth(profile) {
        0 => "The next run begins as if nothing were known: too little of its memory was filled densely.".to_owned(),
        bytes => format!(
            "The next run gets huge pages from its first touch on, in up to {} before it has shown anything itself.",
            Bytes(bytes)
        ),
    };
    format!(
        "{} (build {}), runs: {}, the last one {}\n  \
         {} regions of 2 MB were filled densely, {} were not; {} of {} were empty\n  \
         {} resident at the most in the last run\n{next}",
        printable(&profile.shown.name),
        profile.program,
        profile.runs,
        ago(profile),
        density.dense,
        density.sparse,
        Bytes(u64::from(density.holes) * PAGE),
        Bytes(regions(profile) * REGION),
        Bytes(profile.shown.resident),
    )
}

fn to_json(profile: &Profile) -> Value {
    let density = profile.shown.density;
    json!({
        "program": profile.program.to_string(),
        "name": profile.shown.name,
        "runs": profile.runs,
        "used_s": profile.used,
        "resident_bytes": profile.shown.resident,
        "dense_regions": density.dense,
        "sparse_regions": density.sparse,
        "hole_pages": density.holes,
        "advised_at_birth_bytes": at_birth(profile),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_linux::agent::profiles::{Program, Shown};
    use mega_range::density::Density;

    fn profile(name: &str, program: u64, dense: u32, sparse: u32) -> Profile {
        let density = Density {
            dense,
            sparse,
            holes: sparse * 512,
        };
        let shown = Shown {
            name: name.to_owned(),
            density,
            resident: 3 << 30,
        };
        Profile {
            program: Program(program),
            shown,
            runs: 2,
            used: 0,
        }
    }

    #[test]
    fn a_dense_program_gets_as_much_at_birth_as_may_be_wasted_and_a_sparse_one_nothing() {
        let dense = described(&profile("redis-server", 1, 990, 10));
        assert!(dense.contains("in up to 64M before"), "{dense}");
        assert!(dense.contains("20M of 2.0G were empty"), "{dense}");
        let sparse = described(&profile("redis-server", 1, 500, 500));
        assert!(sparse.contains("as if nothing were known"), "{sparse}");
    }

    #[test]
    fn programs_are_found_by_name_and_by_the_beginning_of_the_build_id() {
        let all = [
            profile("a", 1, 20, 0),
            profile("b\x1b[2J", 2, 20, 0),
            profile("a", 3, 20, 0),
        ];
        let found = |wanted: &str| chosen(&all, wanted).map(|found| found.map(|one| one.program.0).collect::<Vec<_>>());
        assert_eq!(found("a").unwrap(), [1, 3]);
        assert_eq!(found("0200").unwrap(), [2]);
        let error = found("02").unwrap_err().to_string();
        assert_eq!(error, "nothing was learned of '02'; `mega profile list` lists what was");
        assert!(!listed(&all).contains('\x1b'), "{}", listed(&all));
        assert!(listed(&[]).starts_with("nothing was learned yet"));
    }
}
