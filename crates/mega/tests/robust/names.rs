//! Names of processes and mappings that a terminal would obey.

use std::fs;

use crate::*;

/// What sets a terminal's title, in C0 and in C1 (as UTF-8), and what reverses text.
const EVIL: &str = "\u{1b}]0;x\u{7}";

/// A program whose name and one of whose mappings are evil.
fn evil() -> (tempfile::TempDir, std::process::Child) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(EVIL);
    assert!(Command::new("cp")
        .arg("/bin/sleep")
        .arg(&program)
        .status()
        .unwrap()
        .success());
    let child = Command::new(&program).arg("300").spawn().unwrap();
    until("it has its name", || {
        fs::read_to_string(format!("/proc/{}/comm", child.id())).is_ok_and(|comm| comm.starts_with('\u{1b}'))
    });
    (folder, child)
}

fn is_clean(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

#[test]
fn no_name_of_a_program_reaches_the_terminal_as_it_is() {
    if !is_root() {
        return;
    }
    let (_folder, mut child) = evil();
    let pid = child.id().to_string();
    let show = mega().args(["show", &pid]).output().unwrap();
    let map = mega().args(["map", &pid]).output().unwrap();
    let manage = mega()
        .args(["manage", "-v", "--duration", "1s", &pid])
        .output()
        .unwrap();
    let journal = mega()
        .args(["manage", "--journal", "-", "--duration", "1s", &pid])
        .output()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for (what, output) in [
        ("show", show),
        ("map", map),
        ("manage -v", manage),
        ("journal", journal),
    ] {
        let said = stdout(&output) + &stderr(&output);
        assert!(output.status.success(), "{what}: {said}");
        assert!(is_clean(&said), "{what}: {said:?}");
    }
}
