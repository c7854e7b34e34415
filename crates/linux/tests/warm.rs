//! Before the manager's first collapse it touches a block and frees it: the kernel takes that one, which a virtual machine's host backs.
//!
//! A test of its own process: what is known of blocks is known for the machine. Needs root; says so and skips otherwise.

use std::time::Duration;

use mega_core::action::{Action, ActionKind, Expect, Reason};
use mega_core::host::{Host, Wants};
use mega_core::observe::{ProcessId, Region};
use mega_core::units::{BasePages, HUGE_PAGE_BYTES};
use mega_linux::host::{LinuxHost, Listed, Options};
use mega_linux::proc::{stat, vmstat, ProcRoot};
use mega_linux::scan::{choose, Preference};
use mega_linux::sys::Scratch;

/// Huge pages given at faults: a collapse is none.
fn faults() -> u64 {
    vmstat::read(&ProcRoot::default()).unwrap().thp_fault_alloc().unwrap()
}

#[test]
fn a_block_is_touched_and_freed_before_the_first_collapse() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if setting.is_empty() || setting.contains("[never]") {
        return eprintln!("SKIPPED: faults map no huge page here ({})", setting.trim());
    }
    let (scanner, _) = match choose(Preference::Best) {
        Ok(chosen) => chosen,
        Err(error) => return eprintln!("SKIPPED: cannot scan (needs root): {error}"),
    };
    let mut memory = Scratch::map(4 * HUGE_PAGE_BYTES as usize).unwrap();
    memory.advise(libc::MADV_NOHUGEPAGE).unwrap();
    memory.touch(memory.range(), 4096);
    memory.advise(libc::MADV_HUGEPAGE).unwrap();

    let root = ProcRoot::default();
    let pid = std::process::id();
    let options = Options {
        root: root.clone(),
        stop: None,
        duration: None,
        dry_run: false,
        contents: false,
        claims: None,
        actuator: None,
        table: false,
    };
    let mut host = LinuxHost::new(scanner, Box::new(Listed(vec![pid])), options);
    let seen = host.observe(&Wants {
        utilization: false,
        contents: false,
        contents_cpu: Duration::ZERO,
    });
    assert!(
        seen.processes.iter().any(|view| view.id.pid == pid),
        "{:?}",
        host.events()
    );
    let promote = Action {
        process: ProcessId {
            pid,
            started: stat::read(&root, pid).unwrap().start_ticks,
        },
        region: Region(memory.range().start.div_ceil(HUGE_PAGE_BYTES)),
        kind: ActionKind::Promote,
        reason: Reason::Mapped,
        utilization: None,
        benefit: BasePages(512),
        expect: Expect::Anything,
    };
    let before = faults();
    assert_eq!(host.act(&promote).error, None);
    assert!(faults() > before, "no block was touched before the collapse");
}
