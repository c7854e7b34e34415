//! The scanners against memory whose state we know. Needs root; a test that cannot run says why.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mega_linux::module::DEVICE;
use mega_linux::proc::ProcRoot;
use mega_linux::process::Process;
use mega_linux::scan::{
    choose, PageMap, Preference, RawVma, RegionFlags, RegionScan, ScanError, ScanRange, Scanner, VmaKind, REGION_BYTES,
};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

const PAGE: u64 = 4096;
const MADV_COLLAPSE: i32 = 25;

/// `module` where mega.ko is loaded: on Debian's kernels in tests/vm/matrix.
const ALL: [&str; 4] = ["ebpf", "pagemap_scan", "pagemap", "module"];

fn me() -> i32 {
    std::process::id() as i32
}

/// A fork write-protects the memory of all tests, so they take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn scanner(name: &str) -> Option<Box<dyn Scanner>> {
    match choose(Preference::Only(name)) {
        Ok((scanner, _)) => Some(scanner),
        Err(_) if name == "module" && !Path::new(DEVICE).exists() => {
            eprintln!("mega.ko is not loaded: not compared");
            None
        }
        Err(e) => {
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

/// 2 MB-aligned anonymous memory without huge pages unless asked for.
struct Memory {
    base: u64,
    regions: u64,
    mapped: (u64, usize),
}

impl Memory {
    fn new(regions: u64) -> Memory {
        let len = ((regions + 1) * REGION_BYTES) as usize;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            // More than a small machine has; little of it is touched.
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let memory = Memory {
            base: (at as u64).next_multiple_of(REGION_BYTES),
            regions,
            mapped: (at as u64, len),
        };
        memory
            .advise(0, regions, libc::MADV_NOHUGEPAGE)
            .expect("MADV_NOHUGEPAGE");
        memory
    }

    fn region(&self, region: u64) -> u64 {
        self.base + region * REGION_BYTES
    }

    fn write(&self, region: u64, page: u64) {
        // SAFETY: within the mapping.
        unsafe { ((self.region(region) + page * PAGE + 8) as *mut u64).write_volatile(page + 1) };
    }

    fn clear(&self, region: u64, page: u64) {
        // SAFETY: within the mapping.
        unsafe { std::ptr::write_bytes((self.region(region) + page * PAGE) as *mut u8, 0, PAGE as usize) };
    }

    fn read(&self, region: u64, page: u64) {
        // SAFETY: within the mapping.
        unsafe { ((self.region(region) + page * PAGE) as *const u64).read_volatile() };
    }

    fn advise(&self, region: u64, regions: u64, advice: i32) -> std::io::Result<()> {
        let len = (regions * REGION_BYTES) as usize;
        // SAFETY: within the mapping.
        let done = unsafe { libc::madvise(self.region(region) as *mut libc::c_void, len, advice) };
        (done == 0).then_some(()).ok_or_else(std::io::Error::last_os_error)
    }

    fn collapse(&self, region: u64) -> bool {
        let done = self
            .advise(region, 1, libc::MADV_HUGEPAGE)
            .and_then(|()| self.advise(region, 1, MADV_COLLAPSE));
        done.map_err(|e| eprintln!("SKIPPED: no huge page: {e}")).is_ok()
    }

    fn range(&self) -> ScanRange {
        ScanRange {
            start: self.base,
            end: self.region(self.regions),
            young: true,
        }
    }

    fn scan(&self, scanner: &mut dyn Scanner, pid: i32) -> BTreeMap<u64, RegionScan> {
        let mut out = Vec::new();
        scanner.scan(pid, &[self.range()], &mut out).expect("a scan");
        out.into_iter()
            .map(|r| ((r.address - self.base) / REGION_BYTES, r))
            .collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: what was mapped in `new`.
        unsafe { libc::munmap(self.mapped.0 as *mut libc::c_void, self.mapped.1) };
    }
}

/// A forked child that runs `body` and then waits; killed when dropped.
struct Child(i32);

impl Child {
    fn fork(body: impl FnOnce()) -> Child {
        // SAFETY: the child only touches memory and makes system calls, and never returns.
        match unsafe { libc::fork() } {
            0 => {
                body();
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            pid => {
                assert!(pid > 0, "fork");
                Child(pid)
            }
        }
    }

    fn kill(&self) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    fn reap(&self) {
        // SAFETY: our own child; no status wanted.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}

/// The calling thread stays on the processor that it is on, until this is dropped.
struct OnOneCpu(libc::cpu_set_t);

impl OnOneCpu {
    fn new() -> Self {
        // SAFETY: sets of this size for the calling thread; all zeros is an empty set.
        unsafe {
            let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) = (std::mem::zeroed(), std::mem::zeroed());
            let size = size_of::<libc::cpu_set_t>();
            assert_eq!(libc::sched_getaffinity(0, size, &mut before), 0);
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
            Self(before)
        }
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        // SAFETY: the set that the kernel gave us.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) };
    }
}

fn bit(bits: &[u64; 8], page: u64) -> bool {
    bits[page as usize / 64] >> (page % 64) & 1 == 1
}

fn count(bits: &[u64; 8]) -> u16 {
    bits.iter().map(|w| w.count_ones() as u16).sum()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_touched_page_is_found_and_no_other() {
    let _alone = alone();
    for name in ["ebpf", "module"] {
        let Some(mut scanner) = scanner(name) else { continue };
        touched_pages_are_found(scanner.as_mut());
    }
}

fn ourselves() -> Process {
    Process::open(&ProcRoot::default(), std::process::id()).unwrap()
}

/// Clears the accessed bits as a host does: by the scanner itself where it can.
fn clear(scanner: &mut dyn Scanner, memory: &Memory) {
    match scanner.clear(&ourselves(), memory.base, memory.regions as usize) {
        Some(cleared) => assert_eq!(cleared, Ok(memory.regions as usize)),
        None => {
            memory.advise(0, memory.regions, libc::MADV_COLD).expect("MADV_COLD");
            // Those that wait on a processor's list are marked as accessed once more.
            std::thread::sleep(Duration::from_millis(1100));
        }
    }
}

fn touched_pages_are_found(scanner: &mut dyn Scanner) {
    // MADV_COLD passes over pages that wait on another processor's list, and empties its own processor's lists only.
    let _one = OnOneCpu::new();
    const REGIONS: u64 = 12;
    for seed in [1, 2] {
        eprintln!("seed {seed}");
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let memory = Memory::new(REGIONS);
        // What we did to each page: read as zero page, written once, touched in this round.
        let mut zero = vec![[false; 512]; REGIONS as usize];
        let mut written = vec![[false; 512]; REGIONS as usize];
        for round in 0..3 {
            if round > 0 {
                clear(scanner, &memory);
            }
            let mut touched = vec![[false; 512]; REGIONS as usize];
            for region in 0..REGIONS {
                // Region 0 stays empty, region 1 full, the others anything between.
                let share = [0, 100]
                    .get(region as usize)
                    .copied()
                    .unwrap_or(random.next_u32() % 101);
                for page in 0..512u64 {
                    let (r, p) = (region as usize, page as usize);
                    if random.next_u32() % 100 >= share {
                        continue;
                    }
                    touched[r][p] = true;
                    if random.next_u32() % 4 == 0 && region != 1 {
                        memory.read(region, page);
                        zero[r][p] |= !written[r][p];
                    } else {
                        memory.write(region, page);
                        written[r][p] = true;
                        zero[r][p] = false;
                    }
                }
            }
            let seen = memory.scan(scanner, me());
            for region in 0..REGIONS {
                let r = region as usize;
                let map = scanner.page_map(me(), memory.region(region)).expect("a page map");
                for page in 0..512u64 {
                    let p = page as usize;
                    let at = format!("seed {seed} round {round} region {region} page {page}");
                    assert_eq!(bit(&map.mapped, page), written[r][p] || zero[r][p], "mapped: {at}");
                    assert_eq!(bit(&map.zero, page), zero[r][p], "zero: {at}");
                    assert!(!written[r][p] || bit(&map.dirty, page), "dirty: {at}");
                    // MADV_COLD leaves the zero page's entries alone.
                    if !zero[r][p] {
                        assert_eq!(bit(&map.accessed, page), touched[r][p], "accessed: {at}");
                    }
                }
                let Some(found) = seen.get(&region) else {
                    assert_eq!(count(&map.mapped), 0, "region {region} was left out");
                    continue;
                };
                assert_eq!(
                    [found.mapped, found.accessed, found.dirty, found.zero, found.swapped],
                    [
                        count(&map.mapped),
                        count(&map.accessed),
                        count(&map.dirty),
                        count(&map.zero),
                        0
                    ],
                    "counts and map of region {region} differ"
                );
                assert!(!found.is_huge() && !found.flags.contains(RegionFlags::RACED));
            }
        }
    }
}

#[test]
fn all_scanners_agree_on_mapped_zero_and_huge() {
    let _alone = alone();
    let memory = Memory::new(6);
    for page in 0..512 {
        memory.write(0, page);
        memory.write(4, page);
        if page % 5 == 0 {
            memory.read(1, page);
        }
        if page % 7 < 3 {
            memory.write(2, page);
        }
    }
    memory.write(5, 511);
    let huge = memory.collapse(4);
    let mut all = Vec::new();
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        assert_eq!(scanner.name(), name);
        let seen: Vec<_> = memory
            .scan(scanner.as_mut(), me())
            .into_iter()
            .map(|(i, r)| (i, r.mapped, r.zero, r.swapped, r.is_huge()))
            .collect();
        let maps: Vec<PageMap> = (0..6)
            .map(|i| scanner.page_map(me(), memory.region(i)).expect("a page map"))
            .collect();
        let mut contents = Vec::new();
        scanner
            .zero_filled(me(), &[memory.region(0), memory.region(4)], &mut contents)
            .expect("contents");
        assert_eq!(
            contents[0].checked, 0,
            "{name}: a base-mapped region has no huge page to look into"
        );
        assert_eq!(contents[1].checked, if huge { 512 } else { 0 }, "{name}");
        all.push((name, seen, maps.iter().map(|m| (m.mapped, m.zero)).collect::<Vec<_>>()));
    }
    let truth = vec![
        (0, 512, 0, 0, false),
        (1, 103, 103, 0, false),
        (2, 220, 0, 0, false),
        (4, 512, 0, 0, huge),
        (5, 1, 0, 0, false),
    ];
    for (name, seen, maps) in &all {
        assert_eq!(*seen, truth, "{name}");
        assert_eq!(*maps, all[0].2, "{name}");
    }
}

/// Its pages stay side by side, which is all that /proc/PID/pagemap shows of a huge page.
#[test]
fn a_full_region_that_was_split_is_no_longer_huge() {
    let _alone = alone();
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        let memory = Memory::new(1);
        (0..512).for_each(|page| memory.write(0, page));
        if !memory.collapse(0) {
            return;
        }
        assert!(memory.scan(scanner.as_mut(), me())[&0].is_huge(), "{name}");
        until(&format!("{name}: not split"), || {
            // SAFETY: the first page of the mapping; nothing is written.
            let done = unsafe { libc::madvise(memory.base as *mut libc::c_void, PAGE as usize, libc::MADV_COLD) };
            assert_eq!(done, 0);
            !memory.scan(scanner.as_mut(), me())[&0].is_huge()
        });
        assert_eq!(memory.scan(scanner.as_mut(), me())[&0].mapped, 512, "{name}");
    }
}

#[test]
fn contents_are_exact_and_reading_them_sets_no_accessed_bit() {
    let _alone = alone();
    let memory = Memory::new(2);
    for page in 0..512 {
        memory.write(0, page);
        memory.write(1, page);
    }
    // Pages whose only byte is the last one, or lies in the middle, are not zero-filled.
    for page in 0..100 {
        memory.clear(0, page);
    }
    for (page, byte) in [(100, 4095), (101, 64), (102, 2048)] {
        memory.clear(0, page);
        // SAFETY: within the mapping.
        unsafe { ((memory.region(0) + page * PAGE + byte) as *mut u8).write_volatile(1) };
    }
    if !memory.collapse(0) || !memory.collapse(1) {
        return;
    }
    let addresses = [memory.region(0), memory.region(1)];
    for name in ["pagemap", "pagemap_scan", "ebpf"] {
        let Some(mut scanner) = scanner(name) else { continue };
        memory.advise(0, 2, libc::MADV_COLD).expect("MADV_COLD");
        let mut contents = Vec::new();
        scanner.zero_filled(me(), &addresses, &mut contents).expect("contents");
        let found: Vec<_> = contents
            .iter()
            .map(|c| (c.address, c.zero_filled, c.checked, c.raced))
            .collect();
        assert_eq!(
            found,
            [(addresses[0], 100, 512, false), (addresses[1], 0, 512, false)],
            "{name}"
        );
        // Of the three pages with a byte late in them, those past the first line may count as zero-filled for the quick look.
        let mut quick = Vec::new();
        scanner
            .at_most_zero_filled(me(), &addresses, &mut quick)
            .expect("contents");
        assert!(
            (100..=103).contains(&quick[0].zero_filled) && quick[1].zero_filled == 0,
            "{name}: {quick:?}"
        );
        if name == "ebpf" {
            let seen = memory.scan(scanner.as_mut(), me());
            assert!(
                seen.values().all(|r| r.is_huge() && r.accessed == 0),
                "reading raised accessed: {seen:?}"
            );
            memory.read(0, 7);
            assert_eq!(memory.scan(scanner.as_mut(), me())[&0].accessed, 512, "a touch is seen");
            let times: Vec<_> = contents.iter().map(|c| c.time_ns).collect();
            eprintln!("contents took {times:?} ns");
        }
    }
}

#[test]
fn pages_shared_by_fork_are_counted_until_written_or_the_child_ends() {
    let _alone = alone();
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        let memory = Memory::new(1);
        for page in 0..300 {
            memory.write(0, page);
        }
        memory.read(0, 400); // the zero page is shared by everybody and does not count
        let address = memory.region(0);
        assert_eq!(
            scanner.fork_shared(me(), address).unwrap(),
            0,
            "{name}: before the fork"
        );
        let child = Child::fork(|| {});
        assert_eq!(
            scanner.fork_shared(me(), address).unwrap(),
            300,
            "{name}: after the fork"
        );
        if name == "ebpf" {
            let seen = memory.scan(scanner.as_mut(), me())[&0];
            assert!(seen.flags.contains(RegionFlags::SHARED), "{seen:?}");
            assert_eq!(seen.write_protected, 301);
        }
        for page in 0..50 {
            memory.write(0, page);
        }
        assert_eq!(
            scanner.fork_shared(me(), address).unwrap(),
            250,
            "{name}: after 50 writes"
        );
        drop(child);
        // Other tests fork too, and their children share the pages until they end.
        until("sharing ends with the child", || {
            scanner.fork_shared(me(), address).unwrap() == 0
        });
        if name == "ebpf" {
            let seen = memory.scan(scanner.as_mut(), me())[&0];
            assert!(!seen.flags.contains(RegionFlags::SHARED), "{seen:?}");
        }
    }
}

#[test]
fn pages_without_access_rights_are_still_mapped() {
    let _alone = alone();
    let Some(mut ebpf) = scanner("ebpf") else { return };
    let memory = Memory::new(1);
    for page in 0..512 {
        memory.write(0, page);
    }
    // SAFETY: a part of our own mapping, not touched until it is writable again.
    unsafe {
        libc::mprotect(
            (memory.base + 64 * PAGE) as *mut libc::c_void,
            (100 * PAGE) as usize,
            libc::PROT_NONE,
        )
    };
    let seen = memory.scan(ebpf.as_mut(), me())[&0];
    assert_eq!(
        (seen.mapped, seen.swapped, seen.zero, seen.accessed),
        (512, 0, 0, 512),
        "{seen:?}"
    );
    assert_eq!(count(&ebpf.page_map(me(), memory.base).unwrap().mapped), 512);
}

#[test]
fn a_hundred_mappings_are_listed_and_scanned() {
    let _alone = alone();
    let Some(mut ebpf) = scanner("ebpf") else { return };
    let memory = Memory::new(200);
    // Every other region read-only: 200 mappings that cannot merge.
    for region in (0..200).step_by(2) {
        memory.write(region, region);
        // SAFETY: our own memory, only read from now on.
        unsafe {
            libc::mprotect(
                memory.region(region) as *mut libc::c_void,
                REGION_BYTES as usize,
                libc::PROT_READ,
            );
        }
    }
    memory.advise(0, 1, libc::MADV_HUGEPAGE).expect("MADV_HUGEPAGE");
    let mut lists = Vec::new();
    for name in ["ebpf", "pagemap"] {
        let Some(mut scanner) = scanner(name) else { continue };
        let vmas = scanner.vmas(me()).expect("VMAs");
        let ours: Vec<RawVma> = vmas
            .into_iter()
            .filter(|v| v.start >= memory.base && v.end <= memory.region(199))
            .collect();
        assert_eq!(ours.len(), 199, "{name}");
        let known = RawVma::READ | RawVma::WRITE | RawVma::HUGEPAGE | RawVma::NOHUGEPAGE | RawVma::SHARED;
        assert!(ours.iter().all(|v| v.kind == VmaKind::Anonymous));
        assert_eq!(ours[0].vm_flags & known, RawVma::READ | RawVma::HUGEPAGE, "{name}");
        assert_eq!(
            ours[1].vm_flags & known,
            RawVma::READ | RawVma::WRITE | RawVma::NOHUGEPAGE,
            "{name}"
        );
        lists.push(
            ours.iter()
                .map(|v| (v.start, v.end, v.vm_flags & known))
                .collect::<Vec<_>>(),
        );
    }
    assert!(lists.windows(2).all(|w| w[0] == w[1]));
    let ranges: Vec<ScanRange> = (0..200)
        .map(|i| ScanRange {
            start: memory.region(i),
            end: memory.region(i + 1),
            young: i % 3 == 0,
        })
        .collect();
    let mut out = Vec::new();
    ebpf.scan(me(), &ranges, &mut out).expect("a scan");
    let addresses: Vec<u64> = out.iter().map(|r| r.address).collect();
    let expected: Vec<u64> = (0..200).step_by(2).map(|i| memory.region(i)).collect();
    assert_eq!(addresses, expected);
    // khugepaged may already have collapsed the first one.
    assert!(out[1..].iter().all(|r| r.mapped == 1), "{out:?}");
}

#[test]
fn more_ranges_and_regions_than_one_read_takes_are_all_scanned() {
    let _alone = alone();
    let Some(mut ebpf) = scanner("ebpf") else { return };
    let memory = Memory::new(1500);
    for region in 0..1500 {
        memory.write(region, region % 512);
    }
    for young in [false, true] {
        let whole = [ScanRange {
            young,
            ..memory.range()
        }];
        let single: Vec<ScanRange> = (0..1500)
            .map(|i| ScanRange {
                start: memory.region(i),
                end: memory.region(i + 1),
                young,
            })
            .collect();
        for ranges in [&whole[..], &single[..]] {
            let mut out = Vec::new();
            ebpf.scan(me(), ranges, &mut out).expect("a scan");
            assert_eq!(out.len(), 1500);
            assert!(out
                .iter()
                .zip(0..)
                .all(|(r, i)| r.address == memory.region(i) && r.mapped == 1));
        }
    }
    // Nearly all of the address space is empty, and skipped by gigabytes and half terabytes.
    let all = ScanRange {
        start: 0,
        end: 1 << 47,
        young: false,
    };
    let mut out = Vec::new();
    let begin = Instant::now();
    ebpf.scan(me(), &[all], &mut out).expect("a scan of everything");
    eprintln!("all 128 TB took {:?} for {} regions", begin.elapsed(), out.len());
    assert!(
        out.iter()
            .filter(|r| r.address >= memory.base && r.address < memory.region(1500))
            .count()
            == 1500
    );
}

#[test]
fn a_process_that_dies_is_gone_for_every_scanner() {
    let _alone = alone();
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        let memory = Memory::new(64);
        for region in 0..64 {
            (0..512).for_each(|page| memory.write(region, page));
        }
        let child = Child::fork(|| {});
        let killer = child.0;
        // Killed once it was scanned, however slow this machine is: the scans that follow meet its death at any point.
        let (scanned, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = wait.recv();
            std::thread::sleep(Duration::from_millis(30));
            // SAFETY: our own child, not reaped yet.
            unsafe { libc::kill(killer, libc::SIGKILL) };
        });
        let (mut scans, begin) = (0, Instant::now());
        let error = loop {
            let mut out = Vec::new();
            match scanner.scan(child.0, &[memory.range()], &mut out) {
                // The pagemap ways see an address space that is being torn down as an empty one.
                Ok(()) if name == "ebpf" => assert_eq!(out.len(), 64, "scan {scans}"),
                Ok(()) => assert!(begin.elapsed() < Duration::from_secs(20), "{name} never notices"),
                Err(e) => break e,
            }
            scans += 1;
            let _ = scanned.send(());
        };
        drop(scanned);
        assert!(matches!(error, ScanError::Gone), "{name}: {error}");
        assert!(scans > 0, "{name}: gone before it was killed");
        thread.join().unwrap();
        // Now a zombie, then nothing at all.
        assert!(
            matches!(scanner.page_map(child.0, memory.base), Err(ScanError::Gone)),
            "{name}: zombie"
        );
        assert!(matches!(scanner.vmas(child.0), Err(ScanError::Gone)), "{name}: zombie");
        child.reap();
        for pid in [child.0, 0, -1, i32::MAX] {
            assert!(matches!(scanner.vmas(pid), Err(ScanError::Gone)), "{name}: pid {pid}");
            let gone = scanner.scan(pid, &[memory.range()], &mut Vec::new());
            assert!(matches!(gone, Err(ScanError::Gone)), "{name}: pid {pid}: {gone:?}");
        }
    }
}

#[test]
fn what_is_kept_for_a_process_is_let_go_with_it() {
    let _alone = alone();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        let memory = Memory::new(1);
        memory.write(0, 0);
        let look = |scanner: &mut dyn Scanner| {
            let child = Child::fork(|| {});
            scanner.vmas(child.0).unwrap();
            scanner.scan(child.0, &[memory.range()], &mut Vec::new()).unwrap();
            let pid = child.0;
            drop(child);
            pid
        };
        let before = open();
        for _ in 0..20 {
            let pid = look(scanner.as_mut());
            scanner.forget(pid);
        }
        assert_eq!(open(), before, "{name}");
    }
}

extern "C" fn wait_for_ever(_: *mut libc::c_void) -> *mut libc::c_void {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

#[test]
fn a_process_whose_leader_has_exited_is_scanned_through_its_threads() {
    let _alone = alone();
    let memory = Memory::new(2);
    (0..512).for_each(|page| memory.write(1, page));
    let child = Child::fork(|| {
        let mut thread = 0;
        // SAFETY: starts a thread that never returns, then ends only this one.
        unsafe {
            libc::pthread_create(&mut thread, std::ptr::null(), wait_for_ever, std::ptr::null_mut());
            libc::syscall(libc::SYS_exit, 0);
        }
    });
    let stat = format!("/proc/{}/stat", child.0);
    until("the leader exits", || {
        std::fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        let seen = memory.scan(scanner.as_mut(), child.0);
        assert_eq!(
            seen.iter().map(|(i, r)| (*i, r.mapped)).collect::<Vec<_>>(),
            [(1, 512)],
            "{name}"
        );
        assert!(scanner
            .vmas(child.0)
            .expect("VMAs")
            .iter()
            .any(|v| v.start <= memory.base && v.end > memory.base));
    }
}

#[test]
fn a_storm_of_munmap_and_fork_does_not_fail_a_scan() {
    let _alone = alone();
    let Some(mut ebpf) = scanner("ebpf") else { return };
    let memory = Memory::new(32);
    let (base, regions) = (memory.base, memory.regions);
    let child = Child::fork(|| loop {
        for region in 0..regions {
            let at = (base + region * REGION_BYTES) as *mut libc::c_void;
            // SAFETY: the child's own copy of the memory, which nothing else uses; the grandchild ends at once.
            unsafe {
                (0..512)
                    .step_by(3)
                    .for_each(|page| at.cast::<u8>().add(page * 4096).write_volatile(1));
                if region % 8 == 0 {
                    match libc::fork() {
                        0 => libc::_exit(0),
                        pid => libc::waitpid(pid, std::ptr::null_mut(), 0),
                    };
                }
                let (prot, flags) = (
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                );
                libc::munmap(at, REGION_BYTES as usize);
                libc::mmap(at, REGION_BYTES as usize, prot, flags | libc::MAP_FIXED, -1, 0);
                libc::madvise(at, REGION_BYTES as usize, libc::MADV_HUGEPAGE);
            }
        }
    });
    let (begin, mut scans, mut found, mut raced) = (Instant::now(), 0, 0, 0);
    while begin.elapsed() < Duration::from_secs(2) {
        let seen = memory.scan(ebpf.as_mut(), child.0);
        found += seen.len();
        raced += seen.values().filter(|r| r.flags.contains(RegionFlags::RACED)).count();
        ebpf.page_map(child.0, memory.region(scans % 32)).expect("a page map");
        ebpf.zero_filled(child.0, &[memory.region(scans % 32)], &mut Vec::new())
            .expect("contents");
        ebpf.fork_shared(child.0, memory.region(scans % 32))
            .expect("fork_shared");
        assert!(ebpf
            .vmas(child.0)
            .expect("VMAs")
            .windows(2)
            .all(|w| w[0].end <= w[1].start));
        scans += 1;
    }
    eprintln!("{scans} scans, {found} regions, {raced} raced");
    assert!(scans > 10 && found > 0);
}

#[test]
fn wrong_requests_are_refused() {
    let _alone = alone();
    assert!(matches!(
        choose(Preference::Only("magic")),
        Err(ScanError::Refused { .. })
    ));
    for name in ALL {
        let Some(mut scanner) = scanner(name) else { continue };
        for (start, end) in [
            (4096, REGION_BYTES),
            (2 * REGION_BYTES, REGION_BYTES),
            (0, !(REGION_BYTES - 1)),
        ] {
            let range = ScanRange {
                start,
                end,
                young: false,
            };
            assert!(
                scanner.scan(me(), &[range], &mut Vec::new()).is_err(),
                "{name}: {range:?}"
            );
        }
        for address in [8, u64::MAX, !(REGION_BYTES - 1)] {
            assert!(scanner.page_map(me(), address).is_err(), "{name}: {address:#x}");
        }
        scanner
            .scan(me(), &[], &mut Vec::new())
            .expect("no ranges, nothing to do");
    }
}

/// In a machine whose time is the count of its instructions (MEGA_VM_EXACT): tests/vm/experiments.
#[test]
#[ignore = "times mean something in the exact mode only"]
fn instructions_of_reading_and_of_clearing_by_each_way() {
    let _alone = alone();
    const REGIONS: u64 = 32;
    for huge in [false, true] {
        let memory = Memory::new(REGIONS);
        (0..REGIONS).for_each(|region| (0..512).for_each(|page| memory.write(region, page)));
        if huge {
            (0..REGIONS).for_each(|region| assert!(memory.collapse(region), "no huge page"));
        }
        for name in ["ebpf", "module"] {
            let Some(mut scanner) = scanner(name) else { continue };
            let touch = || (0..REGIONS).for_each(|region| (0..512).for_each(|page| memory.write(region, page)));
            let (mut read, mut cleared) = (0, 0);
            // The first round warms up.
            for _ in 0..3 {
                touch();
                let began = Instant::now();
                let seen = memory.scan(scanner.as_mut(), me());
                read = began.elapsed().as_nanos() as u64 / REGIONS;
                assert!(seen.values().all(|region| region.accessed == 512), "{name}: {seen:?}");
                let own = ourselves();
                let began = Instant::now();
                match scanner.clear(&own, memory.base, REGIONS as usize) {
                    Some(cleared) => assert_eq!(cleared, Ok(REGIONS as usize)),
                    None => memory.advise(0, REGIONS, libc::MADV_COLD).expect("MADV_COLD"),
                }
                cleared = began.elapsed().as_nanos() as u64 / REGIONS;
            }
            let kind = if huge { "huge" } else { "base" };
            eprintln!("VM {kind}-mapped, {name}: {read} instructions a region to read, {cleared} to clear");
        }
    }
}

/// What the verifier goes through is most of the time in which `mega run` starts: 80 ms once, for 150,000 instructions.
#[test]
fn the_kernel_is_soon_done_with_verifying_the_scanner() {
    use libbpf_rs::query::ProgInfoIter;
    let _turn = alone();
    let before: Vec<u32> = ProgInfoIter::default().map(|program| program.id).collect();
    let Some(_scanner) = scanner("ebpf") else { return };
    let ours = ProgInfoIter::default().filter(|program| !before.contains(&program.id));
    let found = ours.filter(|program| program.name == "mega_task");
    let verified = found.map(|program| program.verified_insns).max().expect("our program");
    if verified == 0 {
        eprintln!("SKIPPED: this kernel does not say what it verified (5.16 does)");
        return;
    }
    eprintln!("{verified} instructions verified");
    assert!(verified < 60_000);
}
