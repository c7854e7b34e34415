//! What happens to the whole machine meanwhile: memory and processors go and come back, everything is compacted, split, marked; the module goes, too.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Dice;

/// While it is there callers keep away, so that the module can go.
pub const GATE: &str = "/tmp/gate";

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// One turn of a disturbance, pause included; whether something was done.
type Disturb = fn(&mut Dice) -> bool;

pub const DISTURBANCES: [(&str, Disturb); 9] = [
    ("unloads", unload),
    ("memory blocks", memory),
    ("processors", processor),
    ("compactions", compact),
    ("caches", caches),
    ("idle marks", idle),
    ("pools", hugetlb),
    ("splits", split),
    ("modes", mode),
];

fn write(path: &str, text: &str) -> bool {
    std::fs::write(path, text).is_ok()
}

/// A command that may not end by itself, for so many seconds at most.
fn shell(command: &str, seconds: u64) -> bool {
    let mut all = Command::new("timeout");
    all.args(["-s", "KILL", &seconds.to_string(), "sh", "-c", command]);
    let status = all.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn unload(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(4));
    if !write(GATE, "") {
        return false;
    }
    let end = Instant::now() + Duration::from_secs(3);
    let mut gone = false;
    while !gone && Instant::now() < end {
        // SAFETY: takes a name and flags; the module goes only when nobody uses it.
        gone = unsafe { libc::syscall(libc::SYS_delete_module, c"mega".as_ptr(), libc::O_NONBLOCK) } == 0;
        dice.pause(Duration::from_millis(2));
    }
    if gone {
        if dice.once_in(2) {
            let _ = std::fs::remove_file(GATE);
        }
        dice.pause(Duration::from_millis(50));
        load();
    }
    let _ = std::fs::remove_file(GATE);
    gone
}

/// Loads the module where it is not.
pub fn load() {
    let file = File::open("/mega.ko").unwrap();
    // SAFETY: loads the module from a file, without parameters.
    let loaded = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert!(
        loaded == 0 || matches!(error, Some(libc::EEXIST | libc::ENOMEM | libc::EINTR)),
        "{error:?}"
    );
}

fn memory(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(3));
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/memory") else {
        return false;
    };
    let paths = entries
        .flatten()
        .map(|e| e.path().join("state"))
        .filter(|path| path.exists());
    let mut paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.sort();
    if paths.is_empty() {
        return false;
    }
    let path = &paths[dice.below(paths.len() as u64) as usize];
    // Pages that cannot be moved are tried again until a signal comes.
    let gone = shell(&format!("echo offline > {path}"), 5);
    dice.pause(Duration::from_millis(300));
    let back = dice.pick(&["online", "online_movable", "online_kernel"]);
    let _ = write(path, back) || write(path, "online");
    gone
}

fn processor(dice: &mut Dice) -> bool {
    const CPU: &str = "/sys/devices/system/cpu/cpu1/online";
    dice.pause(Duration::from_secs(8));
    let gone = write(CPU, "0");
    dice.pause(Duration::from_millis(500));
    let _ = write(CPU, "1");
    gone
}

fn compact(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(4));
    write("/proc/sys/vm/compact_memory", "1")
}

fn caches(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(4));
    write("/proc/sys/vm/drop_caches", dice.pick(&["1", "2", "3"]))
}

fn idle(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_millis(300));
    let Ok(bitmap) = File::options()
        .read(true)
        .write(true)
        .open("/sys/kernel/mm/page_idle/bitmap")
    else {
        return false;
    };
    let mut bytes = [0xffu8; 512];
    let at = dice.below(128) * 512;
    let file = std::os::unix::fs::FileExt::write_at(&bitmap, &bytes, at);
    let _ = std::os::unix::fs::FileExt::read_at(&bitmap, &mut bytes, at);
    file.is_ok()
}

fn hugetlb(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(2));
    write("/proc/sys/vm/nr_hugepages", &dice.below(6).to_string())
}

fn split(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(3));
    write("/sys/kernel/debug/split_huge_pages", "1")
}

/// Never "never": that waits for khugepaged to end, which takes it minutes here.
fn mode(dice: &mut Dice) -> bool {
    dice.pause(Duration::from_secs(2));
    write(&format!("{THP}/enabled"), dice.pick(&["always", "madvise"]))
}

/// Swap on compressed memory, khugepaged in a hurry, and nothing reported that was there before.
pub struct Machine {
    saved: Vec<(String, String)>,
    swap: bool,
}

impl Machine {
    pub fn prepare() -> Self {
        let set = |path: String, to: &str| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // "always [madvise] never", or a number.
            let chosen = text.split('[').nth(1).and_then(|rest| rest.split(']').next());
            let was = chosen.unwrap_or(text.trim()).to_owned();
            write(&path, to);
            (path, was)
        };
        let saved = vec![
            set(format!("{THP}/enabled"), "madvise"),
            set(format!("{THP}/khugepaged/scan_sleep_millisecs"), "50"),
            set(format!("{THP}/khugepaged/alloc_sleep_millisecs"), "50"),
            set("/proc/sys/vm/nr_hugepages".to_owned(), "2"),
        ];
        let swap =
            write("/sys/block/zram0/disksize", "268435456") && shell("mkswap /dev/zram0 && swapon /dev/zram0", 20);
        if write(KMEMLEAK, "scan") {
            write(KMEMLEAK, "clear");
        }
        let seen = |path: &str| std::fs::exists(path).unwrap_or(false);
        eprintln!(
            "MODULE storm: swap {swap}, kmemleak {}, lockdep {}, memory blocks {}",
            seen(KMEMLEAK),
            seen("/proc/lockdep_stats"),
            seen("/sys/devices/system/memory")
        );
        Machine { saved, swap }
    }

    pub fn put_back(self) {
        write("/sys/devices/system/cpu/cpu1/online", "1");
        for (path, was) in self.saved {
            write(&path, &was);
        }
        if self.swap {
            shell("swapoff /dev/zram0", 60);
        }
    }
}

/// On a debug kernel: nothing of anybody's is left without an owner, and lockdep has not stopped looking.
pub fn no_leaks() {
    if let Ok(stats) = std::fs::read_to_string("/proc/lockdep_stats") {
        let looking = stats.lines().find(|line| line.trim_start().starts_with("debug_locks:"));
        assert!(
            looking.is_some_and(|line| line.ends_with('1')),
            "lockdep stopped: {looking:?}"
        );
    }
    if !std::fs::exists(KMEMLEAK).unwrap_or(false) {
        return;
    }
    // What is younger than 5 s is not reported, and what only a register had is found by the second look.
    std::thread::sleep(Duration::from_secs(6));
    for _ in 0..2 {
        assert!(write(KMEMLEAK, "scan"));
    }
    let leaks = std::fs::read_to_string(KMEMLEAK).unwrap();
    let count = leaks.matches("unreferenced object").count();
    assert!(
        leaks.is_empty(),
        "{count} leaks, the first: {}",
        &leaks[..leaks.len().min(4000)]
    );
}
