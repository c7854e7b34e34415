//! `mega` on a machine with several NUMA nodes: what is on a node without free blocks waits, and holds up nobody; what is promoted stays on
//! its node. `tests/vm/live` runs this on an emulated machine with two nodes.

#[path = "../live/support.rs"]
mod support;
#[allow(dead_code)] // shared with the test program `hazards`, which uses all of it
#[path = "../hazards/tool.rs"]
mod tool;

use std::collections::BTreeMap;
use std::io;
use std::sync::MutexGuard;
use std::time::Duration;

use mega_core::action::Deferred;
use mega_core::journal::{Event, Line};
use mega_lab::memory::{base_page_bytes, Mapping};
use mega_linux::proc::{buddyinfo, ProcRoot};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use support::{addresses, huge_among, wait_until, Workload};
use tool::{ready, Manager};

const SOON: Duration = Duration::from_secs(240);
const REGIONS: usize = 8;
const OPEN: [&str; 5] = [
    "--interval=1s",
    "--cpu-budget=100%",
    "--stall-budget=100%",
    "--policy=ingens",
    "--scanner=pagemap",
];
/// What a node keeps free of memory while its blocks are taken: beyond its watermarks.
const KEPT: usize = 256 << 20;
/// Memory taken at a time.
const STEP: usize = 2 << 20;

/// From here on this thread's memory, and that of what it starts, is of this node; of any one: `None`.
fn memory_of(node: Option<u32>) {
    const MPOL_DEFAULT: i32 = 0;
    const MPOL_BIND: i32 = 2;
    let mask: u64 = node.map_or(0, |node| 1 << node);
    let (mode, of, bits) = match node {
        Some(_) => (MPOL_BIND, &raw const mask, 64usize),
        None => (MPOL_DEFAULT, std::ptr::null(), 0),
    };
    // SAFETY: the mask lives through the call and has as many bits as it is told.
    let error = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, of, bits) };
    assert_eq!(error, 0, "{}", io::Error::last_os_error());
}

/// Base pages of these regions of a process, by node.
fn pages_by_node(pid: i32, addresses: &[u64]) -> BTreeMap<u32, u64> {
    let mut pages = BTreeMap::new();
    for address in addresses {
        // One at a time: of several the call tells where most are.
        for page in 0..512u64 {
            if let Some(node) = mega_linux::sys::node_of(pid as u32, &[address + page * 4096]) {
                *pages.entry(node).or_default() += 1;
            }
        }
    }
    pages
}

fn free_of(node: u32) -> usize {
    let text = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")).unwrap();
    let line = text.lines().find(|line| line.contains("MemFree:")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse::<usize>().unwrap() << 10
}

fn blocks_of(node: u32) -> u64 {
    buddyinfo::read(&ProcRoot::default()).unwrap().free_blocks_of(node).0
}

/// Memory that leaves a node free memory, but no free block: base pages of which half were given back, and huge pages. The kernel makes no
/// blocks by itself meanwhile.
struct Hog {
    _memory: Vec<Mapping>,
    proactiveness: String,
}

const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = std::fs::write(PROACTIVENESS, &self.proactiveness);
    }
}

impl Hog {
    /// In the pages that it frees nothing but base pages fit; each step frees as much as it takes of the blocks.
    fn take(node: u32) -> Self {
        let proactiveness = std::fs::read_to_string(PROACTIVENESS).unwrap();
        std::fs::write(PROACTIVENESS, "0").unwrap();
        memory_of(Some(node));
        let touch = |memory: &Mapping| {
            for page in 0..memory.len_bytes() / base_page_bytes() {
                memory.page_words(page)[0].store(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let mut rng = Pcg64Mcg::new(1);
        let mut all = Vec::new();
        let mut small = Vec::new();
        while free_of(node) > KEPT {
            let mut memory = Mapping::new(STEP).unwrap();
            memory.advise(0..STEP, libc::MADV_NOHUGEPAGE).unwrap();
            touch(&memory);
            small.push(memory);
        }
        while blocks_of(node) > 0 {
            for _ in 0..2 {
                let mut memory = small.pop().expect("blocks are left when all memory is taken");
                // One of each two at random: where the kernel's scanner finds no free page it goes on by every 32nd, and may miss a pattern
                // (docs/linux.md).
                for pair in (0..STEP / base_page_bytes()).step_by(2) {
                    let at = (pair + (rng.next_u32() & 1) as usize) * base_page_bytes();
                    memory.advise(at..at + base_page_bytes(), libc::MADV_DONTNEED).unwrap();
                }
                all.push(memory);
            }
            let mut memory = Mapping::new(2 * STEP).unwrap();
            memory.advise(0..2 * STEP, libc::MADV_HUGEPAGE).unwrap();
            let start = memory.start().next_multiple_of(STEP) - memory.start();
            memory.page_words(start / base_page_bytes())[0].store(1, std::sync::atomic::Ordering::Relaxed);
            all.push(memory);
        }
        all.extend(small);
        memory_of(None);
        Self {
            _memory: all,
            proactiveness,
        }
    }
}

/// Eight dense regions in use and others, of which all memory is of this node.
fn kinds(node: u32) -> (Workload, Vec<u64>) {
    memory_of(Some(node));
    let (workload, ready) = Workload::start(&["kinds", "--regions", "8", "--vmas", "4", "--mix"]);
    memory_of(None);
    (workload, addresses(&ready, "full-hot"))
}

fn is_scan(line: &Line) -> bool {
    matches!(line.event, Event::Scanned { .. })
}

/// Promotions of this process wait for this.
fn is_waiting(line: &Line, process: i32, reason: Deferred) -> bool {
    matches!(line.event, Event::Defer { pid, why, .. } if pid == process as u32 && why == reason)
}

/// Whether there are several nodes, and what managing needs; says so where not.
fn ready_with_nodes() -> Option<MutexGuard<'static, ()>> {
    if !buddyinfo::read(&ProcRoot::default()).unwrap().has_nodes() {
        eprintln!("SKIPPED: this machine has one NUMA node");
        return None;
    }
    ready(1024)
}

#[test]
fn what_is_on_a_node_without_free_blocks_waits_for_them_and_holds_up_nobody() {
    let Some(_alone) = ready_with_nodes() else { return };
    let (mut near, of_near) = kinds(0);
    // What is filled first is contiguous, so that promoting a region of it would leave a free block.
    let hog = Hog::take(1);
    let (mut far, of_far) = kinds(1);
    assert!(blocks_of(0) > 64, "{}", blocks_of(0));
    let pids = [near.pid.to_string(), far.pid.to_string()];
    let mut args: Vec<&str> = OPEN.to_vec();
    args.push("--compact=off");
    args.extend(pids.iter().map(String::as_str));
    // A manager whose own memory is there tries a collapse in vain, and manages all the same.
    memory_of(Some(1));
    let manager = Manager::start("manage", &args);
    memory_of(None);
    let huge = |workload: &Workload, of: &[u64]| huge_among(workload.pid, of);
    assert!(
        wait_until(SOON, || huge(&near, &of_near) + 1 >= REGIONS),
        "{}",
        manager.program.stderr()
    );
    let scanned = || manager.lines().iter().filter(|line| is_scan(line)).count();
    let before = scanned();
    assert!(wait_until(SOON, || scanned() >= before + 6));
    // The kernel would have compacted in the program's time. Some blocks come free by themselves, as what was promoted leaves its base pages.
    let had = huge(&far, &of_far);
    assert!(
        had <= REGIONS / 2,
        "{had}, {} blocks: {}",
        blocks_of(1),
        manager.program.stderr()
    );
    let waits = manager
        .lines()
        .iter()
        .filter(|line| is_waiting(line, far.pid, Deferred::FreeBlocks))
        .count();
    assert!(waits > 0, "nothing was said of what waits");
    // Blocks again.
    drop(hog);
    assert!(
        wait_until(SOON, || huge(&far, &of_far) + 1 >= REGIONS),
        "{}",
        manager.program.stderr()
    );
    let managed = manager.stop();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    for (workload, of, node) in [(&mut near, &of_near, 0), (&mut far, &of_far, 1)] {
        workload.check();
        let pages = pages_by_node(workload.pid, of);
        assert_eq!(pages.keys().copied().collect::<Vec<_>>(), [node], "{pages:?}");
    }
    eprintln!("VM nodes: {waits} times said that what is on node 1 waits");
    assert!(near.quit().success() && far.quit().success());
}

#[test]
fn a_node_keeps_its_own_share_of_memory_free() {
    let Some(_alone) = ready_with_nodes() else { return };
    let (mut near, of_near) = kinds(0);
    let (mut far, of_far) = kinds(1);
    // The other node keeps enough for both, and this one has blocks enough.
    let mut taken = Vec::new();
    memory_of(Some(1));
    while free_of(1) > 2 * KEPT {
        let mut memory = Mapping::new(STEP).unwrap();
        memory.advise(0..STEP, libc::MADV_HUGEPAGE).unwrap();
        for page in 0..STEP / base_page_bytes() {
            memory.page_words(page)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        }
        taken.push(memory);
    }
    memory_of(None);
    let share = |node: u32| {
        let node = mega_linux::proc::node::read(&ProcRoot::default(), node).unwrap();
        100 * node.available_bytes.0 / node.total_bytes.0
    };
    // The machine as a whole is above the floor.
    assert!(share(1) + 10 < share(0), "{} {}", share(1), share(0));
    assert!(blocks_of(1) > 64, "{}", blocks_of(1));
    let pids = [near.pid.to_string(), far.pid.to_string()];
    let kept = format!("--free-memory={}%", share(1) + 3);
    let mut args: Vec<&str> = OPEN.to_vec();
    args.extend(["--compact=off", &kept]);
    args.extend(pids.iter().map(String::as_str));
    let manager = Manager::start("manage", &args);
    let huge = |workload: &Workload, of: &[u64]| huge_among(workload.pid, of);
    assert!(
        wait_until(SOON, || huge(&near, &of_near) + 1 >= REGIONS),
        "{}",
        manager.program.stderr()
    );
    let waits = || {
        let lines = manager.lines();
        lines
            .iter()
            .filter(|line| is_waiting(line, far.pid, Deferred::FreeMemory))
            .count()
    };
    assert!(wait_until(SOON, || waits() > 0), "{}", manager.program.stderr());
    let scanned = || manager.lines().iter().filter(|line| is_scan(line)).count();
    let before = scanned();
    assert!(wait_until(SOON, || scanned() >= before + 3));
    assert_eq!(huge(&far, &of_far), 0);
    drop(taken);
    assert!(
        wait_until(SOON, || huge(&far, &of_far) + 1 >= REGIONS),
        "{}",
        manager.program.stderr()
    );
    assert_eq!(manager.stop().ended.code(), 0);
    near.check();
    far.check();
    assert!(near.quit().success() && far.quit().success());
}

#[test]
fn blocks_are_made_on_the_node_that_lacks_them() {
    let Some(_alone) = ready_with_nodes() else { return };
    let hog = Hog::take(1);
    let (mut far, of_far) = kinds(1);
    let pid = far.pid.to_string();
    let mut args: Vec<&str> = OPEN.to_vec();
    args.extend(["--compact=demand", pid.as_str()]);
    let manager = Manager::start("manage", &args);
    let huge = || huge_among(far.pid, &of_far);
    let is_made = wait_until(SOON, || huge() + 1 >= REGIONS);
    let said = || {
        let lines = manager.lines().into_iter().filter(|line| !is_scan(line));
        lines.map(|line| format!("{:?}\n", line)).collect::<String>()
    };
    assert!(
        is_made,
        "{} huge, {} blocks, {} MB free, {} pieces: {}\n{}\n{}",
        huge(),
        blocks_of(1),
        free_of(1) >> 20,
        hog._memory.len(),
        std::fs::read_to_string("/proc/pagetypeinfo").unwrap(),
        manager.program.stderr(),
        said()
    );
    let managed = manager.stop();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    drop(hog);
    far.check();
    assert_eq!(pages_by_node(far.pid, &of_far).into_keys().collect::<Vec<_>>(), [1]);
    assert!(far.quit().success());
}
