//! Every command has its page with all sections, and man programs have nothing to say about it; completions name every command.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command as Program, Stdio};

use clap::Command;

use crate::sections::TITLES;
use crate::{commands, page, write};

fn names(command: &Command, name: &str, all: &mut BTreeSet<String>) {
    all.insert(format!("{name}.1"));
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        names(part, &format!("{name}-{}", part.get_name()), all);
    }
}

fn pages() -> Vec<(String, String)> {
    let all = commands();
    let texts = all.iter().flat_map(|command| page::pages(command).unwrap());
    texts
        .map(|(name, text)| (name, String::from_utf8(text).unwrap()))
        .collect()
}

#[test]
fn every_command_has_a_page_with_every_section() {
    let mut wanted = BTreeSet::new();
    for command in commands() {
        names(&command, command.get_name(), &mut wanted);
    }
    assert!(wanted.len() > 20 && wanted.contains("mega-config-check.1") && wanted.contains("mega-lab-sim-sweep.1"));
    let pages = pages();
    assert_eq!(
        pages.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>(),
        wanted
    );
    for (name, text) in &pages {
        for title in ["NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"].iter().chain(&TITLES) {
            let head = [format!(".SH {title}\n"), format!(".SH \"{title}\"\n")];
            assert_eq!(
                head.iter().filter(|head| text.contains(*head)).count(),
                1,
                "{name}: {title}"
            );
        }
    }
}

#[test]
fn every_page_renders_without_a_warning() {
    let checker = [
        ("mandoc", &["-T", "lint", "-W", "warning"][..]),
        ("groff", &["-man", "-ww", "-Tutf8", "-z"]),
    ]
    .into_iter()
    .find(|(program, _)| Program::new(program).arg("--version").output().is_ok());
    let Some((program, options)) = checker else {
        eprintln!("skipped: neither mandoc nor groff is installed");
        return;
    };
    for (name, text) in pages() {
        let mut child = Program::new(program)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        // Pages have no date on purpose.
        let said: Vec<&str> = said
            .lines()
            .filter(|line| !line.is_empty() && !line.contains("missing date"))
            .collect();
        assert!(said.is_empty(), "{program}: {name}: {said:#?}");
    }
}

#[test]
fn completions_are_written_for_three_shells_and_name_every_command() {
    let folder = std::env::temp_dir().join(format!("mega-pages-{}", std::process::id()));
    write(&folder).unwrap();
    for command in commands() {
        let name = command.get_name();
        for file in [
            format!("bash/{name}"),
            format!("zsh/_{name}"),
            format!("fish/{name}.fish"),
        ] {
            let text = fs::read_to_string(folder.join(name).join(&file)).unwrap();
            for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
                assert!(text.contains(part.get_name()), "{file}: {}", part.get_name());
            }
        }
        assert!(folder.join(name).join(format!("man/{name}.1")).exists());
    }
    fs::remove_dir_all(folder).unwrap();
}
