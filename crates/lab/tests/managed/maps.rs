//! What `mega map` draws is so: physical memory against the kernel's counts, a process against what it wrote.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use mega_linux::proc::{buddyinfo, ProcRoot};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;

use crate::support::{alone, can_run, huge_bytes, rss_bytes, Workload, MEGA};

const REGIONS: usize = 64;

fn mega(args: &[&str]) -> Output {
    Command::new(MEGA).arg("map").args(args).output().unwrap()
}

fn said(args: &[&str]) -> String {
    let out = mega(args);
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

fn fits(text: &str) {
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than 80 columns:\n{}", wide.join("\n"));
    assert!(!text.contains('\x1b'), "escapes where no terminal is: {text}");
}

fn sum(values: &Value) -> u64 {
    values.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
}

#[test]
fn the_map_of_physical_memory_has_as_much_free_as_the_kernel_says() {
    let _alone = alone();
    if !can_run(64) {
        return;
    }
    let seen: Value = serde_json::from_str(&said(&["phys", "--json"])).unwrap();
    assert_eq!((seen["schema"].as_u64(), &seen["kind"]), (Some(1), &"map-phys".into()));
    let every = seen["every"].as_u64().unwrap();
    let free = sum(&seen["blocks"]["free_pages"]) * every;
    let now = buddyinfo::read(&ProcRoot::default()).unwrap().free_pages();
    assert!(free.abs_diff(now) < now / 10 + (64 << 8), "{free} {now}");
    let kinds = ["free", "movable", "unmovable", "huge", "offline", "unflagged"];
    let all: u64 = kinds
        .iter()
        .map(|kind| sum(&seen["blocks"][format!("{kind}_pages")]))
        .sum();
    assert_eq!(
        all,
        512 * seen["read_blocks"].as_u64().unwrap(),
        "every page is something"
    );

    let text = said(&["phys"]);
    eprintln!("{text}");
    fits(&text);
    assert!(
        text.contains("a cell is") && text.contains("read in") && text.contains("Normal"),
        "{text}"
    );
    let sampled = said(&["phys", "--every", "16"]);
    fits(&sampled);
    assert!(sampled.contains("one block in 16"), "{sampled}");
}

#[test]
fn the_map_of_a_process_shows_what_it_wrote() {
    let _alone = alone();
    if !can_run(2048) {
        return;
    }
    let (workload, ready) = Workload::start(&["kinds", "--regions", &REGIONS.to_string(), "--mix"]);
    assert_eq!(ready["collapse_failed"], 0, "{ready}");
    let pid = workload.pid.to_string();
    let seen: Value = serde_json::from_str(&said(&[&pid, "--json"])).unwrap();
    let regions = seen["regions"].as_array().unwrap();
    let pages = |name: &str| -> u64 { regions.iter().map(|r| r[name].as_u64().unwrap_or(0)).sum() };
    let resident = pages("mapped_pages") * 4096 + seen["elsewhere_bytes"].as_u64().unwrap();
    let rss = rss_bytes(workload.pid);
    assert!(resident.abs_diff(rss) <= rss / 100 + (1 << 20), "{resident} {rss}");
    let huge = regions.iter().filter(|r| r["huge"] == true).count() as u64;
    assert_eq!(huge << 21, huge_bytes(workload.pid));
    assert_eq!(pages("waste_pages"), REGIONS as u64 * 502);

    let text = said(&[&pid]);
    eprintln!("{text}");
    fits(&text);
    for band in ["mapped", "huge", "waste"] {
        assert!(text.contains(&format!("\n  {band:<9}|")), "{band}: {text}");
    }
    assert!(workload.quit().success());
}

#[test]
fn pictures_are_written_and_other_endings_are_wrong_usage() {
    let _alone = alone();
    if !can_run(64) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let me = std::process::id().to_string();
    for target in ["phys", &me] {
        let (png, svg) = (file("a.png"), file("a.svg"));
        assert_eq!(said(&[target, "-o", &png]), "");
        said(&[target, "-o", &svg]);
        let bytes = std::fs::read(&png).unwrap();
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 1000);
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        // A process may have no whole region.
        assert!(target != "phys" || text.matches("<rect").count() > 100, "{text}");
    }
    for (args, status) in [
        (vec!["phys", "-o", "x.gif"], 2),
        (vec!["phys", "-o", "/nonexistent/x.png"], 1),
        (vec!["4194304"], 1),
        (vec!["nonsense"], 2),
    ] {
        let out = mega(&args);
        assert_eq!(out.status.code(), Some(status), "{args:?}");
        assert!(!out.stderr.is_empty() && out.stdout.is_empty(), "{args:?}");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(status == 2 || errors.lines().count() == 1, "{args:?}: {errors}");
    }
}

#[test]
fn who_may_not_see_physical_memory_is_told_what_is_needed() {
    let _alone = alone();
    if !can_run(64) {
        return;
    }
    // The binary may lie where only root gets to: a copy is for everyone.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("mega");
    assert!(Command::new("cp").arg(MEGA).arg(&copy).status().unwrap().success());
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    open(folder.path());
    open(&copy);
    let out = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["map", "phys"])
        .output();
    match out {
        Err(why) => eprintln!("SKIPPED: no setpriv (util-linux): {why}"),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{text}");
            assert!(
                text.contains("CAP_SYS_ADMIN") && text.contains("/proc/buddyinfo"),
                "{text}"
            );
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}

#[test]
fn watching_ends_with_an_interrupt_and_gives_the_cursor_back() {
    let _alone = alone();
    if !can_run(64) {
        return;
    }
    let mut watching = Command::new(MEGA)
        .args(["map", "phys", "--every", "64", "--json", "--watch=50ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut ages = Vec::new();
    for _ in 0..2 {
        let seen: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        ages.push(seen["blocks"]["age_ns"][0].clone());
    }
    assert!(
        ages[0].is_null() && ages[1].is_u64(),
        "the second look knows ages: {ages:?}"
    );
    kill_process(Pid::from_child(&watching), Signal::INT).unwrap();
    lines.for_each(drop);
    assert!(watching.wait().unwrap().success());

    let line = format!("timeout --foreground --preserve-status -s INT 2 {MEGA} map phys --watch=200ms");
    let out = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    match out {
        Err(why) => eprintln!("SKIPPED: no terminal without script (util-linux): {why}"),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success(), "{text:?}");
            assert!(
                text.contains("\x1b[?25l") && text.trim_end().ends_with("\x1b[?25h"),
                "{text:?}"
            );
            assert!(text.matches("\x1b[H").count() >= 2, "redrawn: {text:?}");
            assert!(text.contains("\x1b[38;5;"), "in colour: {text:?}");
        }
    }
}
