//! A reduced end-to-end test of `mega`, for any kernel and any speed: `tests/vm/live` runs this on Debian's kernels under emulation. Budgets are wide
//! open, since an emulated processor is a fiftieth of a real one; the test checks the effect on memory, not the speed.

#[path = "../live/support.rs"]
mod support;
#[allow(dead_code)] // shared with the test program `hazards`, which uses all of it
#[path = "../hazards/tool.rs"]
mod tool;

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mega_core::journal::{Event, Line};
use mega_linux::capabilities::split_frees;
use mega_linux::proc::ProcRoot;
use rustix::process::Signal;

use support::{addresses, huge_among, huge_bytes, rss_bytes, wait_until, Workload};
use tool::{ready, state_files, Manager};

const SOON: Duration = Duration::from_secs(120);
const REGIONS: usize = 8;
/// The history of ten has filled by then.
const SCANS: usize = 12;
const OPEN: [&str; 4] = [
    "--interval=1s",
    "--cpu-budget=100%",
    "--stall-budget=100%",
    "--compact=off",
];

fn kinds() -> (Workload, serde_json::Value) {
    let (workload, ready) = Workload::start(&["kinds", "--regions", "8", "--vmas", "4", "--mix"]);
    assert_eq!(ready["collapse_failed"], 0, "{ready}");
    (workload, ready)
}

/// Has the process managed for a dozen scans and until this is so, or for two minutes.
fn manage(pid: i32, more: &[&str], so: impl Fn() -> bool) -> tool::Managed {
    let pid = pid.to_string();
    let mut args: Vec<&str> = OPEN.iter().chain(more).copied().chain([pid.as_str()]).collect();
    if !more.iter().any(|arg| arg.starts_with("--policy")) {
        args.push("--policy=mega");
    }
    let manager = Manager::start("manage", &args);
    let scanned = |line: &&Line| matches!(line.event, Event::Scanned { .. });
    let _ = wait_until(SOON, || manager.lines().iter().filter(scanned).count() >= SCANS && so());
    let managed = manager.stop();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    managed
}

#[test]
fn hot_regions_become_huge_wasteful_ones_are_split_and_others_are_left() {
    let Some(_alone) = ready(1024) else { return };
    let (mut workload, ready) = kinds();
    let pid = workload.pid;
    let before = rss_bytes(pid);
    let huge = |kind| huge_among(pid, &addresses(&ready, kind));
    let frees = split_frees(&ProcRoot::default());
    let managed = manage(pid, &[], || {
        huge("full-hot") + 1 >= REGIONS && (!frees || huge("huge-waste") == 0)
    });
    workload.check();
    assert!(
        huge("full-hot") + 1 >= REGIONS,
        "{}: {}",
        huge("full-hot"),
        managed.ended.stderr
    );
    assert_eq!(
        (huge("full-cold"), huge("tenth-hot")),
        (0, 0),
        "{}",
        managed.ended.stderr
    );
    let back = before.saturating_sub(rss_bytes(pid));
    if frees {
        assert_eq!(huge("huge-waste"), 0, "{}", managed.ended.stderr);
        let waste = (REGIONS * 502 * 4096) as u64;
        assert!(back * 100 >= waste * 90, "{back} of {waste} came back");
    } else {
        // So it is not done for the waste.
        assert_eq!(huge("huge-waste"), REGIONS, "{}", managed.ended.stderr);
        eprintln!("EXPECTED: this kernel splits without freeing (before 6.12), so wasteful huge pages are left");
    }
    assert!(workload.quit().success());
    assert!(state_files().is_empty());
}

#[test]
fn without_ebpf_what_is_mapped_is_promoted() {
    let Some(_alone) = ready(1024) else { return };
    let (mut workload, ready) = kinds();
    let pid = workload.pid;
    let full = || huge_among(pid, &addresses(&ready, "full-hot")) + huge_among(pid, &addresses(&ready, "full-cold"));
    // The policy that goes by what is mapped: without accessed bits MEGA's own promotes nothing.
    let managed = manage(pid, &["--scanner=pagemap", "--policy=ingens"], || {
        full() + 2 >= 2 * REGIONS
    });
    workload.check();
    assert!(full() + 2 >= 2 * REGIONS, "{}: {}", full(), managed.ended.stderr);
    assert!(workload.quit().success());
}

/// A manager of this process, by policy `mega`.
fn managing(pid: i32) -> Manager {
    let pid = pid.to_string();
    let args: Vec<&str> = OPEN.iter().copied().chain(["--policy=mega", &pid]).collect();
    Manager::start("manage", &args)
}

fn scans(manager: &Manager) -> usize {
    let is_scan = |line: &&Line| matches!(line.event, Event::Scanned { .. });
    manager.lines().iter().filter(is_scan).count()
}

/// Stops the machine for some seconds, and gives the time that it stood still: what CLOCK_BOOTTIME has gained on CLOCK_MONOTONIC.
fn suspend(seconds: u64) -> Duration {
    use rustix::time::{clock_gettime, ClockId};
    let stood_still = || {
        let of = |clock| Duration::try_from(clock_gettime(clock)).unwrap();
        of(ClockId::Boottime).saturating_sub(of(ClockId::Monotonic))
    };
    let before = stood_still();
    let wake = Path::new("/sys/class/rtc/rtc0/wakealarm");
    let _ = std::fs::write(wake, "0");
    std::fs::write(wake, format!("+{seconds}")).expect("a clock that can wake the machine");
    std::fs::write("/sys/power/state", "mem").expect("the machine suspends");
    stood_still().saturating_sub(before)
}

#[test]
#[ignore = "suspends the machine: for tests/vm/live"]
fn a_suspend_in_the_middle_is_a_pause_and_nothing_else() {
    let Some(_alone) = ready(1024) else { return };
    let (mut workload, ready) = kinds();
    let manager = managing(workload.pid);
    assert!(wait_until(SOON, || scans(&manager) >= 3));
    let slept = suspend(30);
    assert!(slept > Duration::from_secs(10), "it stood still for {slept:?}");
    eprintln!("VM suspended for {} s", slept.as_secs());
    // It goes on, and does what it would have done.
    let hot = addresses(&ready, "full-hot");
    let done = wait_until(SOON, || huge_among(workload.pid, &hot) + 1 >= REGIONS);
    assert!(done, "{}: {}", huge_among(workload.pid, &hot), manager.program.stderr());
    // Time by itself means nothing: `mega off` knows its manager by what a suspend does not change.
    let off = tool::mega(&["off"]);
    assert_eq!(off.code(), 0, "{}", off.stderr);
    let managed = manager.wait(SOON);
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    workload.check();
    assert!(workload.quit().success());
    assert!(state_files().is_empty());
}

/// Moves the clock of the day.
fn step(hours: i64) {
    use rustix::time::{clock_gettime, clock_settime, ClockId};
    let mut now = clock_gettime(ClockId::Realtime);
    now.tv_sec += hours * 3600;
    clock_settime(ClockId::Realtime, now).expect("the clock is set");
}

#[test]
#[ignore = "sets the machine's clock: for tests/vm/live"]
fn clocks_that_step_are_no_matter() {
    let Some(_alone) = ready(1024) else { return };
    let (mut workload, ready) = kinds();
    let hot = addresses(&ready, "full-hot");
    let manager = managing(workload.pid);
    for hours in [25, -50, 25] {
        let had = scans(&manager);
        assert!(
            wait_until(SOON, || scans(&manager) > had + 1),
            "{}",
            manager.program.stderr()
        );
        step(hours);
    }
    let done = wait_until(SOON, || huge_among(workload.pid, &hot) + 1 >= REGIONS);
    assert!(done, "{}: {}", huge_among(workload.pid, &hot), manager.program.stderr());
    let lines = manager.lines();
    assert!(
        lines.windows(2).all(|pair| pair[0].at <= pair[1].at),
        "the journal goes back"
    );
    let managed = manager.stop();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    workload.check();
    assert!(workload.quit().success());
}

/// A connection to Redis.
struct Redis(BufReader<UnixStream>);

impl Redis {
    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut line = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            line.extend(format!("${}\r\n", word.len()).into_bytes());
            line.extend(*word);
            line.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&line).unwrap();
        let head = self.line();
        match head.first() {
            Some(b'$') => {
                let length: usize = String::from_utf8_lossy(&head[1..]).parse().unwrap();
                let mut value = vec![0; length + 2];
                self.0.read_exact(&mut value).unwrap();
                value.truncate(length);
                value
            }
            _ => head,
        }
    }

    fn line(&mut self) -> Vec<u8> {
        use std::io::BufRead;
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        line.truncate(line.len().saturating_sub(2));
        line
    }
}

fn value(key: u32) -> Vec<u8> {
    key.to_le_bytes().iter().copied().cycle().take(4096).collect()
}

#[test]
fn redis_keeps_its_values_while_it_is_promoted_and_when_its_mega_is_killed() {
    const KEYS: u32 = 8192;
    let Some(_alone) = ready(1024) else { return };
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-server is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let path = socket.to_str().unwrap();
    let redis = [
        "--",
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        path,
        "--save",
        "",
        "--disable-thp",
        "no",
    ];
    let args: Vec<&str> = OPEN.iter().chain(&redis).copied().collect();
    let manager = Manager::start("run", &args);
    assert!(
        wait_until(SOON, || Path::new(path).exists()),
        "no Redis: {}",
        manager.program.stderr()
    );
    let mut redis = Redis(BufReader::new(UnixStream::connect(&socket).unwrap()));
    for key in 0..KEYS {
        let said = redis.ask(&[b"SET", key.to_string().as_bytes(), &value(key)]);
        assert_eq!(said, b"+OK");
    }
    let info = String::from_utf8(redis.ask(&[b"INFO", b"server"])).unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    let all_there = |redis: &mut Redis| {
        for key in 0..KEYS {
            assert!(
                redis.ask(&[b"GET", key.to_string().as_bytes()]) == value(key),
                "value {key} is wrong"
            );
        }
    };
    let began = Instant::now();
    while huge_bytes(pid) < 8 << 20 {
        all_there(&mut redis);
        assert!(began.elapsed() < SOON, "{} of Redis are huge", huge_bytes(pid));
    }
    eprintln!(
        "VM redis: {} MB huge after {} s",
        huge_bytes(pid) >> 20,
        began.elapsed().as_secs()
    );
    manager.program.signal(Signal::KILL);
    assert_eq!(manager.wait(SOON).ended.code(), 137);
    all_there(&mut redis);
    let _ = redis.0.get_mut().write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n");
    let gone = wait_until(SOON, || {
        !Path::new(&format!("/proc/{pid}/maps")).exists() || rss_is_none(pid)
    });
    assert!(gone, "Redis does not end");
}

/// Ended, and perhaps not reaped.
fn rss_is_none(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/maps")).map_or(true, |maps| maps.is_empty())
}
