//! `mega x` is the `x` of mega-lab, or the program `mega-x`: beside mega, or in PATH. Needs no privilege.

#[path = "commands/mod.rs"]
mod commands;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use commands::{built, LAB, MEGA};

fn run(program: impl AsRef<Path>, args: &[&str], path: &str) -> (Output, String) {
    let mut command = Command::new(program.as_ref());
    command.args(args).env("PATH", path);
    // A file just written is busy (ETXTBSY) as long as a child that another test forked meanwhile holds it for writing.
    let output = loop {
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::sleep(Duration::from_millis(5)),
            ended => break ended.unwrap(),
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

/// A copy of a command in a folder of its own.
fn alone(program: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    built();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(name);
    fs::copy(program, &copy).unwrap();
    (folder, copy)
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_laboratory_s_commands_are_mega_s() {
    built();
    let (mega, errors) = run(MEGA, &["sim", "list", "--json"], "");
    assert!(mega.status.success(), "{errors}");
    assert_eq!(mega.stdout, run(LAB, &["sim", "list", "--json"], "").0.stdout);
    for (args, words) in [
        (&["bench", "--help"][..], "Usage: mega bench "),
        (&["mosaic", "explore", "--help"], "Usage: mega mosaic explore "),
        (&["sim", "sweep", "--help"], "Usage: mega sim sweep "),
    ] {
        let (output, _) = run(MEGA, args, "");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(words), "{args:?}: {text}");
    }
    for refused in [
        &["hog", "--order", "99"][..],
        &["bench"],
        &["frag", "--nothing"],
        &["mosaic", "explore"],
        &["record", "-o", "/dev/null", "--workload", "gusp"],
    ] {
        let (output, errors) = run(MEGA, refused, "");
        assert_eq!(output.status.code(), Some(2), "{refused:?}: {errors}");
    }
}

#[test]
fn help_lists_the_laboratory_s_commands_by_themselves() {
    built();
    let (output, _) = run(MEGA, &["--help"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    let (own, of_lab) = text.split_once("With mega-lab installed:").expect(&text);
    for name in ["demo", "bench", "sim", "frag", "hog", "mosaic explore"] {
        let line = format!("\n  {name} ");
        assert!(of_lab.contains(&line) && !own.contains(&line), "{name}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn without_the_laboratory_its_commands_say_what_to_install() {
    let (_folder, mega) = alone(MEGA, "mega");
    for args in [
        &["bench", "list"][..],
        &["workload", "gups"],
        &["mosaic", "explore", "--", "true"],
        &["record", "-o", "/dev/null", "--workload", "gups"],
        &["record", "--export", "a.parquet", "/dev/null"],
        &["map", "phys", "-o", "/nonexistent/a.png"],
    ] {
        let (output, errors) = run(&mega, args, "");
        assert_eq!(
            (output.status.code(), errors.lines().count()),
            (Some(2), 1),
            "{args:?}: {errors}"
        );
        for words in [&format!("mega: mega {}", args[0]), "mega-lab", "make build"] {
            assert!(errors.contains(words), "'{words}' is not in: {errors}");
        }
    }
}

#[test]
fn without_mega_an_experiment_says_what_to_install() {
    let (folder, lab) = alone(LAB, "mega-lab");
    let results = folder.path().join("results");
    let (output, errors) = run(
        &lab,
        &["bench", "run", "-o", results.to_str().unwrap(), "--", "true"],
        "",
    );
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(
        errors.contains("neither beside mega-lab nor in PATH") && !results.exists(),
        "{errors}"
    );
}

#[test]
fn an_unknown_command_is_a_program_of_its_own_beside_mega_or_in_path() {
    let (folder, mega) = alone(MEGA, "mega");
    for unknown in ["x", "help", "", "a/b", "../mega"] {
        let (output, errors) = run(&mega, &[unknown], "");
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with(&format!("mega: no command '{unknown}'")), "{errors}");
    }
    let path = tempfile::tempdir().unwrap();
    let name = path.path().to_str().unwrap();
    script(&path.path().join("mega-x"), "echo in PATH: \"$@\"; exit 7");
    let (output, _) = run(&mega, &["x", "--help", "a b", "--"], name);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in PATH: --help a b --\n");
    script(&folder.path().join("mega-x"), "kill -TERM $$");
    let (output, _) = run(&mega, &["x"], name);
    assert_eq!(output.status.signal(), Some(15));
    // What cannot be executed is none.
    fs::set_permissions(folder.path().join("mega-x"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(&mega, &["x"], name).0.status.code(), Some(7));
}
