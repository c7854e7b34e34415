//! What the command is started with: the limit of open files that mega had, another user.

use std::fs;
use std::path::Path;

use crate::*;

#[test]
fn mega_raises_its_own_limit_of_open_files_and_the_command_has_the_old_one() {
    if !is_root() {
        return;
    }
    let script = "ulimit -Sn; grep 'Max open files' /proc/$PPID/limits";
    let mega = env!("CARGO_BIN_EXE_mega");
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -Sn 200; ulimit -Hn 5000; exec '{mega}' run -q -- sh -c \"$SCRIPT\""),
        ])
        .env("SCRIPT", script)
        .output()
        .unwrap();
    let said = stdout(&output);
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("200"), "{said}{}", stderr(&output));
    assert_eq!(lines.next().unwrap().split_whitespace().nth(3), Some("5000"), "{said}");
}

#[test]
fn a_command_runs_as_another_user_with_that_users_groups_and_home() {
    if !is_root() {
        return;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let Some(nobody) = passwd.lines().find(|line| line.starts_with("nobody:")) else {
        eprintln!("SKIPPED: there is no user nobody");
        return;
    };
    let fields: Vec<&str> = nobody.split(':').collect();
    let script = "id -u; id -g; id -G; echo $HOME; echo $USER; touch /run/mega-must-not 2>/dev/null && echo bad";
    for name in ["nobody", fields[2]] {
        let output = mega()
            .args(["run", "-q", "--user", name, "--", "sh", "-c", script])
            .output()
            .unwrap();
        let said = stdout(&output);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [fields[2], fields[3], fields[3], fields[5], "nobody"],
            "{}",
            stderr(&output)
        );
    }
    let output = mega()
        .args(["run", "--user", "no-such-user", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("there is no user 'no-such-user'"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn who_called_sudo_is_told_that_the_command_runs_as_root() {
    if !is_root() {
        return;
    }
    let run = |options: &[&str]| {
        let mut command = mega();
        command.arg("run").args(options).args(["--", "true"]);
        stderr(
            &command
                .env("SUDO_UID", "1000")
                .env("SUDO_USER", "ann")
                .output()
                .unwrap(),
        )
    };
    assert!(
        run(&[]).contains("the command runs as root; --user ann"),
        "{}",
        run(&[])
    );
    assert!(!run(&["--user", "0"]).contains("runs as root"));
}

#[test]
fn a_policy_of_page_faults_says_what_it_needs() {
    if Path::new("/sys/kernel/mm/transparent_hugepage/reserve").exists() {
        eprintln!("SKIPPED: this kernel has reservations (tests/vm/reservation mega is their test)");
        return;
    }
    for policy in ["lrbhps", "freebsd", "quicksilver-sync", "quicksilver"] {
        let output = mega().args(["run", "--policy", policy, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("kernel/reservation") && said.contains("mega sim"),
            "{said}"
        );
    }
}

#[test]
fn who_follows_the_journal_sees_a_look_when_it_is_over_and_not_an_interval_later() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    // For ten seconds at most; the second look is after thirty.
    let script = "for i in $(seq 200); do grep ' scanned ' \"$JOURNAL\" && exit 0; sleep 0.05; done; exit 1";
    let output = mega()
        .args(["run", "-q", "--no-agent", "--interval", "30s", "--journal"])
        .arg(&journal)
        .args(["--", "sh", "-c", script])
        .env("JOURNAL", &journal)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains(" scanned "));
}
