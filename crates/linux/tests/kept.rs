//! What a process has unmapped of huge pages is seen, freed, and seen to be free; what it has not unmapped stays as it is.
//!
//! Needs root; says so and skips otherwise.

use std::time::Duration;

use mega_core::action::{judge, precheck, Action, ActionKind, Expect, Outcome, Reason};
use mega_core::host::{Host, Look, Wants};
use mega_core::observe::{ProcessId, Region};
use mega_core::units::{BasePages, HUGE_PAGE_BYTES};
use mega_linux::host::{LinuxHost, Listed, Options};
use mega_linux::inspect::usage::{self, UsageOptions};
use mega_linux::proc::{stat, ProcRoot};
use mega_linux::scan::partly::Partly;
use mega_linux::scan::{choose, Preference};
use mega_linux::sys::Scratch;

const REGIONS: u64 = 24;

#[test]
fn what_is_unmapped_of_huge_pages_is_seen_and_freed_and_the_rest_stays() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if setting.is_empty() || setting.contains("[never]") {
        return eprintln!("SKIPPED: faults map no huge page here ({})", setting.trim());
    }
    let choose = || choose(Preference::Best);
    let (scanner, mut other) = match (choose(), choose()) {
        (Ok(one), Ok(other)) => (one.0, other.0),
        (Err(error), _) | (_, Err(error)) => return eprintln!("SKIPPED: cannot scan (needs root): {error}"),
    };
    let mut memory = Scratch::map(((REGIONS + 1) * HUGE_PAGE_BYTES) as usize).unwrap();
    let start = memory.range().start.next_multiple_of(HUGE_PAGE_BYTES);
    memory.advise(libc::MADV_HUGEPAGE).unwrap();
    memory.touch(start..start + REGIONS * HUGE_PAGE_BYTES, 4096);
    // khugepaged is to collapse nothing of it meanwhile.
    memory.advise(libc::MADV_NOHUGEPAGE).unwrap();
    let part = HUGE_PAGE_BYTES / 4;
    for region in 0..REGIONS {
        let at = start + region * HUGE_PAGE_BYTES;
        memory.drop_pages(at + part..at + HUGE_PAGE_BYTES).unwrap();
    }

    let root = ProcRoot::default();
    let pid = std::process::id();
    let options = Options {
        root: root.clone(),
        stop: None,
        duration: None,
        dry_run: false,
        contents: true,
        claims: None,
        actuator: None,
        table: false,
    };
    let mut host = LinuxHost::new(scanner, Box::new(Listed(vec![pid])), options);
    let wants = Wants {
        utilization: false,
        contents: true,
        contents_cpu: Duration::from_secs(5),
    };
    let own = start / HUGE_PAGE_BYTES..start / HUGE_PAGE_BYTES + REGIONS;
    let seen = host.observe(&wants);
    let view = seen.processes.iter().find(|view| view.id.pid == pid).unwrap();
    let kept = view
        .regions
        .iter()
        .filter(|seen| own.contains(&seen.region.0) && seen.kept == BasePages(384));
    assert_eq!(kept.count() as u64, REGIONS, "{:?}", host.events());
    let mut kept_bytes = || {
        let seen = usage::read(&root, other.as_mut(), pid, &UsageOptions::default()).unwrap();
        seen.total.kept_bytes
    };
    assert!(kept_bytes() >= REGIONS * HUGE_PAGE_BYTES / 4 * 3, "{}", kept_bytes());
    let before = Partly::count();

    let process = ProcessId {
        pid,
        started: stat::read(&root, pid).unwrap().start_ticks,
    };
    for region in own.clone().map(Region) {
        let action = Action {
            process,
            region,
            kind: ActionKind::Demote,
            reason: Reason::PartlyUnmapped,
            utilization: None,
            benefit: BasePages(384),
            expect: Expect::Kept(BasePages(64)),
        };
        let look = host.look(process, region, Look::Contents);
        assert_eq!(precheck(&action, look.as_ref()), None, "{look:?}");
        let call = host.act(&action);
        let after = host.look(process, region, Look::Contents);
        assert_eq!(judge(&action, &call, after.as_ref()), Outcome::Done, "{after:?}");
        assert_eq!(after.map(|after| after.mapped), Some(BasePages(128)));
        // Once more is once too often.
        assert_eq!(precheck(&action, after.as_ref()), Some(Outcome::Already));
    }
    assert!(kept_bytes() < HUGE_PAGE_BYTES, "{}", kept_bytes());
    if let (Some(before), Some(after)) = (before, Partly::count()) {
        assert!(after + REGIONS / 2 <= before, "{before} partly unmapped, then {after}");
    }
    for at in (start..start + REGIONS * HUGE_PAGE_BYTES).step_by(4096) {
        let is_left = (at - start) % HUGE_PAGE_BYTES < part;
        assert_eq!(memory.byte(at), u8::from(is_left), "{at:x}");
    }
}
