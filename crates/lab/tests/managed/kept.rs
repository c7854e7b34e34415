//! What a program has unmapped of its huge pages: `mega show` says how much the kernel keeps, and a manager frees it, `auto` as well as
//! `trim`. The program is this test.

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mega_lab::memory::Mapping;
use serde_json::Value;

use crate::support::{alone, can_run, wait_until, Manager, MEGA};

const HUGE: usize = 2 << 20;
const REGIONS: usize = 96;
const PART: usize = HUGE / 4;
/// Three quarters of each.
const KEPT: u64 = (REGIONS * HUGE / 4 * 3) as u64;

/// Memory of which three quarters of each huge page are unmapped. Other pages are numbered.
fn parts() -> Mapping {
    let mut memory = Mapping::new(REGIONS * HUGE).unwrap();
    memory.advise(0..REGIONS * HUGE, libc::MADV_HUGEPAGE).unwrap();
    let words = memory.words().iter().step_by(512);
    words.zip(1..).for_each(|(word, number)| word.store(number, Relaxed));
    // khugepaged is to leave it alone.
    memory.advise(0..REGIONS * HUGE, libc::MADV_NOHUGEPAGE).unwrap();
    for region in (0..REGIONS * HUGE).step_by(HUGE) {
        memory
            .advise(region + PART..region + HUGE, libc::MADV_DONTNEED)
            .unwrap();
    }
    memory
}

fn show(pid: &str) -> (u64, String) {
    let said = |args: &[&str]| String::from_utf8(Command::new(MEGA).args(args).output().unwrap().stdout).unwrap();
    let seen: Value = serde_json::from_str(&said(&["show", "--json", pid])).unwrap();
    let kept = &seen["processes"][0]["total"]["kept_bytes"];
    (kept.as_u64().unwrap_or(0), said(&["show", pid]))
}

#[test]
fn what_is_unmapped_of_huge_pages_is_shown_and_given_back() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let pid = std::process::id().to_string();
    for policy in ["trim", "auto"] {
        let memory = parts();
        let (kept, text) = show(&pid);
        assert!((KEPT..KEPT + (16 << 20)).contains(&kept), "{kept} of {KEPT}: {text}");
        assert!(text.contains("  kept: "), "{text}");
        let began = Instant::now();
        let manager = Manager::start(&["--policy", policy, "--interval", "500ms", &pid]);
        let is_free = wait_until(Duration::from_secs(60), || show(&pid).0 < KEPT / 20);
        let took = began.elapsed();
        let managed = manager.stop();
        let summary = &managed.summary;
        assert!(is_free, "{policy}: {} bytes are kept: {summary}", show(&pid).0);
        let returned = summary["returned_bytes"].as_u64().unwrap();
        assert!(returned >= KEPT / 20 * 19, "{policy}: {summary}");
        eprintln!("{policy}: {} MB free after {took:.1?}", returned >> 20);
        for (word, number) in memory.words().iter().step_by(512).zip(1..) {
            let is_left = (number - 1) % 512 < (PART / 4096) as u64;
            assert_eq!(word.load(Relaxed), if is_left { number } else { 0 }, "page {number}");
        }
        assert!(!show(&pid).1.contains("  kept: "));
    }
}
