//! `mega mosaic explore`: layouts tried and one recommended; what cannot be explored.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder with the library that was built with this test.
fn library_folder() -> Option<PathBuf> {
    let lab = Path::new(env!("CARGO_BIN_EXE_mega-lab"));
    let folders = [lab.parent()?.to_owned(), lab.parent()?.join("deps")];
    let age = |folder: &PathBuf| {
        folder
            .join("libmemomania.so")
            .metadata()
            .and_then(|status| status.modified())
            .ok()
    };
    let found = folders
        .into_iter()
        .filter(|folder| age(folder).is_some())
        .max_by_key(age);
    if found.is_none() {
        eprintln!("SKIPPED: libmemomania.so is not built; test the whole workspace");
    }
    found
}

fn mosaic(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega-lab"));
    command.arg("mosaic").args(args);
    if let Some(folder) = library_folder() {
        command.env("MEGA_LIB_DIR", folder);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Random reads of 24 MB of 48.
const READER: &str = "
import random, sys
b = bytearray(48 << 20); r = random.Random(1); s = 0
for i in range(0, len(b), 4096): b[i] = 1
for _ in range(20000): s += b[r.randrange(24 << 20)]
print(s)";

#[test]
fn exploring_tries_the_planned_layouts_and_recommends_one() {
    let Some(_) = library_folder() else { return };
    let python = Path::new("/usr/bin/python3");
    if !python.is_file() {
        return eprintln!("SKIPPED: /usr/bin/python3 is not there");
    }
    let explore = |more: &[&str]| {
        let common = ["explore", "--windows", "2", "--rounds", "1"];
        let mut command = mosaic(&[&common, more, &["--"]].concat());
        command.arg(python).args(["-c", READER]);
        command.output().unwrap()
    };
    let refused = explore(&["--html", "/nonexistent/page.html"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("cannot write /nonexistent/page.html"));
    let Output { status, stdout, stderr } = explore(&["--json"]);
    assert!(status.success(), "{}", text(&stderr));
    let found: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    assert!(found["heap_bytes"].as_u64().unwrap() >= 48 << 20, "{found}");
    let layouts = found["layouts"].as_array().unwrap();
    let heaps: Vec<_> = layouts.iter().map(|layout| layout["heap"].as_str().unwrap()).collect();
    assert_eq!(heaps.len(), 4, "{found}");
    assert_eq!(heaps[..2], ["4K", "2M:thp@0"]);
    assert!(layouts.iter().all(|layout| layout["seconds"].as_f64().unwrap() > 0.0));
    let windows = found["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["model"] == "windows");
    assert!(windows.unwrap()["mean_error"].as_f64().unwrap() >= 0.0);
    assert!(
        heaps.contains(&found["recommended"]["heap"].as_str().unwrap()),
        "{found}"
    );
    assert_eq!(found["recommended"]["to_base"]["rounds"], 6);
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let Output { status, stdout, .. } = explore(&["--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(
        (page.matches("<svg").count(), page.matches("<circle").count()),
        (2, 4),
        "{page}"
    );
    assert!(
        page.contains("Recommended: --heap ") && !page.contains("<script"),
        "{page}"
    );
    let out = text(&stdout);
    assert!(status.success() && out.contains("Recommended: --heap "), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

#[test]
fn a_program_that_fails_is_not_explored() {
    let Some(_) = library_folder() else { return };
    let explore = |args: &[&str]| {
        let Output { status, stdout, stderr } = mosaic(&[&["explore"], args].concat()).output().unwrap();
        assert!(stdout.is_empty());
        (status.code(), text(&stderr))
    };
    let (status, errors) = explore(&["--", "sh", "-c", "exit 3"]);
    assert!(
        status == Some(1) && errors.contains("the program failed (exit status: 3) under --heap 4K"),
        "{errors}"
    );
    let (status, errors) = explore(&["--pages", "1G", "--", "/bin/true"]);
    assert!(
        status == Some(1) && errors.contains("less than a page of 1G"),
        "{errors}"
    );
    assert_eq!(explore(&["--windows", "0", "--", "/bin/true"]).0, Some(2));
    assert_eq!(explore(&[]).0, Some(2));
    let (status, errors) = explore(&["--", "/nonexistent"]);
    assert!(
        status == Some(1) && errors.contains("cannot run '/nonexistent'"),
        "{errors}"
    );
}
