//! Without privileges: what needs them says so in one line, and the rest works.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mega_lab::contiguity::{HogResult, Stopped};

use crate::support::LAB;
use crate::tool::{ready, Ended, Program};

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn as_nobody(program: &Path, args: &[&str]) -> Ended {
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(program).args(args).stdin(Stdio::null());
    Program::start(&mut command).wait(Duration::from_secs(60))
}

#[test]
fn nobody_may_fragment_and_take_huge_pages_by_faults_but_no_more() {
    let Some(_alone) = ready(1024) else { return };
    if !as_nobody(Path::new("true"), &[]).status.success() {
        eprintln!("SKIPPED: '{}' does not work here", NOBODY.join(" "));
        return;
    }
    // Where everyone can reach it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("mega-lab");
    assert!(Command::new("cp").arg(LAB).arg(&copy).status().unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();

    for kind in ["study", "reserve", "holes"] {
        let ended = as_nobody(&copy, &["frag", "--kind", kind, "--amount", "64M", "--hold", "100ms"]);
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{kind}");
    }
    let ended = as_nobody(&copy, &["hog", "--count", "8", "--json"]);
    assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""));
    let result: HogResult = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((result.obtained, result.stopped), (8, Stopped::Count));

    for (args, words) in [
        (
            &["hog", "--how", "hugetlb"][..],
            ["nr_hugepages", "needs root", "--how fault"],
        ),
        (
            &["frag", "--amount", "1G", "--pin-pages"],
            ["pipes hold", "pipe-user-pages-soft", "CAP_SYS_RESOURCE"],
        ),
    ] {
        let ended = as_nobody(&copy, args);
        assert_eq!((ended.code(), ended.stderr.lines().count()), (1, 1), "{}", ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "'{word}' is not in: {}", ended.stderr);
        }
    }
}
