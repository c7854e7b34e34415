//! Tells the program which commit it was built from, so that results can say so: `MEGA_COMMIT`, with a `+` where the tree had changes.
//! Built from an archive without git it stays unknown.

use std::path::Path;
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let Some(head) = git(&["rev-parse", "--git-path", "HEAD"]) else {
        return;
    };
    if Path::new(&head).exists() {
        println!("cargo:rerun-if-changed={head}");
    }
    if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]).and_then(|name| git(&["rev-parse", "--git-path", &name]))
    {
        if Path::new(&branch).exists() {
            println!("cargo:rerun-if-changed={branch}");
        }
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return;
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    println!("cargo:rustc-env=MEGA_COMMIT={commit}{}", if changed { "+" } else { "" });
}
