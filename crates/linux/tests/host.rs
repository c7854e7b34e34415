//! The live host over a scanner that does as the test says: errors, stop requests, many processes, few descriptors.
//!
//! Processes are real children (`sleep`), which need no privileges to be held.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mega_core::host::{Host, HostEvent, Look, Wants};
use mega_core::observe::Region;
use mega_linux::host::{LinuxHost, Listed, Options};
use mega_linux::proc::ProcRoot;
use mega_linux::process::tasks::TaskReader;
use mega_linux::scan::{PageMap, RawVma, RegionScan, ScanError, ScanRange, Scanner, VmaKind, ZeroFilled};
use mega_linux::sys;

const REGION: u64 = 2 << 20;
const FIRST: u64 = 1 << 30;
const WANTS: Wants = Wants {
    utilization: false,
    contents: false,
    contents_cpu: Duration::ZERO,
};

/// What the scanner is to do.
#[derive(Default)]
struct Script {
    /// These processes cannot be scanned, with this errno.
    fails: BTreeSet<(i32, i32)>,
    /// How many pages are shared cannot be told.
    shared_fails: bool,
    /// Each scan takes this long.
    takes: Duration,
    /// Bytes of address space.
    bytes: u64,
    scans: usize,
}

struct Scripted(Arc<Mutex<Script>>);

fn region(address: u64) -> RegionScan {
    let mut region = RegionScan::default();
    (region.address, region.mapped, region.write_protected) = (address, 512, 512);
    region
}

impl Scanner for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn sees_accessed(&self) -> bool {
        true
    }

    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError> {
        let script = self.0.lock().unwrap();
        if let Some((_, errno)) = script.fails.iter().find(|(failing, _)| *failing == pid) {
            let source = std::io::Error::from_raw_os_error(*errno);
            return Err(ScanError::Io {
                doing: "opening a BPF iterator",
                source,
            });
        }
        Ok(vec![RawVma {
            start: FIRST,
            end: FIRST + script.bytes.max(REGION),
            vm_flags: 0x3 | 0x70,
            kind: VmaKind::Anonymous,
        }])
    }

    fn scan(&mut self, _: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        let takes = {
            let mut script = self.0.lock().unwrap();
            script.scans += 1;
            script.takes
        };
        std::thread::sleep(takes);
        out.extend(ranges.iter().map(|range| region(range.start)));
        Ok(())
    }

    fn page_map(&mut self, _: i32, _: u64) -> Result<PageMap, ScanError> {
        Ok(PageMap::default())
    }

    fn zero_filled(&mut self, _: i32, _: &[u64], _: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        Ok(())
    }

    fn fork_shared(&mut self, _: i32, _: u64) -> Result<u16, ScanError> {
        match self.0.lock().unwrap().shared_fails {
            true => Err(ScanError::Io {
                doing: "reading pagemap",
                source: std::io::Error::from_raw_os_error(libc::EMFILE),
            }),
            false => Ok(0),
        }
    }
}

/// Children that are killed when the test ends.
struct Children(Vec<Child>);

impl Children {
    fn new(count: usize) -> Self {
        Self(
            (0..count)
                .map(|_| Command::new("sleep").arg("300").spawn().unwrap())
                .collect(),
        )
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn host(pids: Vec<u32>, script: &Arc<Mutex<Script>>, stop: Option<OwnedFd>) -> LinuxHost {
    // Each is looked at each time, although they all sleep.
    host_with(pids, script, stop, false)
}

fn host_with(pids: Vec<u32>, script: &Arc<Mutex<Script>>, stop: Option<OwnedFd>, table: bool) -> LinuxHost {
    let options = Options {
        root: ProcRoot::default(),
        stop,
        duration: None,
        dry_run: false,
        contents: true,
        claims: None,
        actuator: None,
        table,
    };
    LinuxHost::new(Box::new(Scripted(Arc::clone(script))), Box::new(Listed(pids)), options)
}

fn notices(host: &mut LinuxHost, what: &str) -> Vec<String> {
    let of = |event| match event {
        HostEvent::Notice(text) if text.contains(what) => Some(text),
        _ => None,
    };
    host.events().into_iter().filter_map(of).collect()
}

#[test]
fn an_error_of_one_process_does_not_silence_that_of_another_or_another_error() {
    let children = Children::new(3);
    let pids = children.pids();
    let script = Arc::new(Mutex::new(Script::default()));
    let mut host = host(pids.clone(), &script, None);
    let fail = |which: usize, errno| script.lock().unwrap().fails.insert((pids[which] as i32, errno));
    fail(0, libc::EIO);
    for expected in [1, 0] {
        assert_eq!(host.observe(&WANTS).processes.len(), 2);
        assert_eq!(
            (notices(&mut host, "cannot be scanned").len(), host.unscanned()),
            (expected, 1)
        );
    }
    fail(1, libc::EIO);
    assert_eq!(host.observe(&WANTS).processes.len(), 1);
    assert_eq!(
        (notices(&mut host, &pids[1].to_string()).len(), host.unscanned()),
        (1, 2)
    );
    script.lock().unwrap().fails.clear();
    fail(0, libc::EMFILE);
    host.observe(&WANTS);
    assert_eq!(
        (notices(&mut host, "Too many open files").len(), host.unscanned()),
        (1, 1)
    );
}

#[test]
fn processes_that_sleep_are_observed_and_hardly_looked_at() {
    if let Err(why) = TaskReader::new() {
        return eprintln!("SKIPPED: no table of processes here: {why}");
    }
    let children = Children::new(20);
    let script = Arc::new(Mutex::new(Script::default()));
    let mut host = host_with(children.pids(), &script, None, true);
    let mut looks = || {
        let before = script.lock().unwrap().scans;
        assert_eq!(host.observe(&WANTS).processes.len(), 20);
        script.lock().unwrap().scans - before
    };
    assert_eq!(looks(), 20);
    let more: usize = (0..100).map(|_| looks()).sum();
    assert!(
        more < 20 * 18,
        "{more} looks at 20 processes that sleep, in 100 observations"
    );
}

#[test]
fn pages_of_which_nobody_can_tell_count_as_shared() {
    let children = Children::new(1);
    let script = Arc::new(Mutex::new(Script::default()));
    let mut host = host(children.pids(), &script, None);
    let id = host.observe(&WANTS).processes[0].id;
    let mut shared = || host.look(id, Region::at(FIRST), Look::Tables).unwrap().shared;
    assert!(!shared());
    script.lock().unwrap().shared_fails = true;
    assert!(shared(), "to promote it might copy it");
    assert_eq!(notices(&mut host, "shared through fork is unknown").len(), 1);
}

#[test]
fn a_stop_request_ends_a_look_at_many_processes_and_one_at_a_large_one() {
    for (processes, bytes) in [(50, 0), (1, 64 << 40)] {
        let children = Children::new(processes);
        let (stop, write) = rustix::pipe::pipe().unwrap();
        let script = Arc::new(Mutex::new(Script {
            takes: Duration::from_millis(200),
            bytes,
            ..Script::default()
        }));
        let mut host = host(children.pids(), &script, Some(stop));
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            rustix::io::write(&write, b".").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        });
        assert!(!host.is_stopped());
        host.observe(&WANTS);
        assert!(host.is_stopped());
        assert!(script.lock().unwrap().scans < 10);
    }
}

#[test]
fn a_first_look_at_many_processes_does_not_compare_each_with_each() {
    let children = Children::new(600);
    let script = Arc::new(Mutex::new(Script::default()));
    let mut host = host(children.pids(), &script, None);
    let before = sys::thread_cpu_time();
    assert_eq!(host.observe(&WANTS).processes.len(), 600);
    let took = sys::thread_cpu_time() - before;
    // 180,000 calls of kcmp would take some tenths of a second; the rest takes some tens of milliseconds.
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// In a process of its own: the limit is the whole process's.
#[test]
fn with_few_descriptors_the_largest_processes_are_managed_and_the_rest_is_counted() {
    if std::env::var_os("MEGA_TEST_FEW_DESCRIPTORS").is_none() {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "with_few_descriptors_the_largest_processes_are_managed_and_the_rest_is_counted",
            ])
            .env("MEGA_TEST_FEW_DESCRIPTORS", "1")
            .output()
            .unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    let children = Children::new(300);
    // A shell that holds 64 MB in a variable is larger than any sleep.
    let large = Children(vec![Command::new("sh")
        .args([
            "-c",
            "x=$(head -c 64000000 /dev/zero | tr '\\0' x); while :; do sleep 1; done",
        ])
        .spawn()
        .unwrap()]);
    std::thread::sleep(Duration::from_secs(3));
    sys::set_open_files_limit(Some(200)).unwrap();
    let script = Arc::new(Mutex::new(Script::default()));
    let mut host = host([children.pids(), large.pids()].concat(), &script, None);
    for expected in [1, 0] {
        let seen = host.observe(&WANTS);
        assert_eq!(seen.processes.len(), 200 - 64 - 50);
        assert!(seen.processes.iter().any(|process| process.id.pid == large.pids()[0]));
        assert_eq!(notices(&mut host, "open files").len(), expected);
    }
    assert!(
        std::fs::File::open("/proc/meminfo").is_ok(),
        "descriptors are left for everything else"
    );
}
