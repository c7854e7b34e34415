//! A process that holds its `mmap_lock` holds up nobody but itself.
//!
//! The lock is held for real: a process maps something else over a dirty page of a FUSE file, and the kernel writes that page while it has the
//! lock. The FUSE server, which is this test, does not answer. Needs root and /dev/fuse; says so and skips otherwise.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mega_core::action::{Action, ActionKind, CallError, Expect, Reason};
use mega_core::host::{Host, HostEvent, Wants};
use mega_core::observe::{ProcessId, Region};
use mega_core::units::BasePages;
use mega_linux::host::{LinuxHost, Listed, Options};
use mega_linux::inspect::regions::region_map;
use mega_linux::inspect::usage::{self, UsageOptions};
use mega_linux::proc::{stat, ProcRoot};
use mega_linux::scan::{choose, Preference};

const WANTS: Wants = Wants {
    utilization: false,
    contents: false,
    contents_cpu: Duration::ZERO,
};
/// Nothing here takes so long, unless it waits for the lock.
const LONG: Duration = Duration::from_secs(20);
/// The child that holds its lock finds the file's path here.
const VARIABLE: &str = "MEGA_TEST_LOCKED_FILE";

/// A FUSE file system that is one regular file of one page, and never answers a write.
struct SilentFile {
    path: PathBuf,
    device: Option<File>,
}

/// Little-endian or not: the kernel and we are on one machine.
fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr` of a regular file, by ino and size as the low words.
fn attributes() -> Vec<u8> {
    let mut list = [0u32; 22];
    list[0] = 1; // ino
    list[2] = 4096; // size
    list[4] = 8; // blocks
    list[15] = 0o100_666; // mode
    list[16] = 1; // nlink
    list[20] = 4096; // blksize
    words(&list)
}

/// The answer to a request; none to a write, and none to what wants none.
fn answer(opcode: u32) -> Option<Result<Vec<u8>, i32>> {
    const LONG_VALID: [u32; 4] = [3600, 0, 0, 0];
    match opcode {
        2 | 16 | 36 | 42 => None, // FORGET, WRITE, INTERRUPT, BATCH_FORGET
        26 => {
            // INIT: version 7.31, read ahead nothing, no flags, writes of a page.
            let mut list = [0u32; 16];
            (list[0], list[1], list[5]) = (7, 31, 4096);
            Some(Ok(words(&list)))
        }
        3 | 4 => Some(Ok([words(&LONG_VALID), attributes()].concat())), // GETATTR, SETATTR
        14 => Some(Ok(words(&[0; 4]))),                                 // OPEN
        15 => Some(Ok(vec![0; 4096])),                                  // READ
        18 | 25 => Some(Ok(Vec::new())),                                // RELEASE, FLUSH
        _ => Some(Err(libc::ENOSYS)),
    }
}

fn serve(mut device: File) {
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        if length < 40 {
            return;
        }
        let opcode = u32::from_ne_bytes(request[4..8].try_into().unwrap());
        let Some(said) = answer(opcode) else { continue };
        let (error, body) = match said {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut out = words(&[16 + body.len() as u32, error as u32]);
        out.extend_from_slice(&request[8..16]);
        out.extend(body);
        if device.write_all(&out).is_err() {
            return;
        }
    }
}

impl SilentFile {
    fn mount(folder: &Path) -> Result<Self, std::io::Error> {
        let path = folder.join("silent");
        File::create(&path)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let text = |text: &str| std::ffi::CString::new(text).unwrap();
        let options = text(&format!(
            "fd={},rootmode=100000,user_id=0,group_id=0",
            device.as_raw_fd()
        ));
        let (source, kind) = (text("mega-test"), text("fuse"));
        let target = text(path.to_str().unwrap());
        // SAFETY: all are strings that live through the call.
        let mounted = unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        if mounted != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let server = device.try_clone()?;
        std::thread::spawn(move || serve(server));
        Ok(Self {
            path,
            device: Some(device),
        })
    }

    /// All requests fail from now on, those that wait, too.
    fn abort(&mut self) {
        let Some(device) = self.device.take() else { return };
        drop(device);
        let target = std::ffi::CString::new(self.path.to_str().unwrap()).unwrap();
        // SAFETY: a string that lives through the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    }
}

impl Drop for SilentFile {
    fn drop(&mut self) {
        self.abort();
    }
}

struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that holds its lock, until the file's server is gone: before that it cannot be killed.
struct Locked {
    file: SilentFile,
    child: Guard,
}

/// Holds the lock of this process's address space until the file's server answers or is gone.
fn hold_own_lock(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // The kernel learns how long the file is.
    assert_eq!(file.metadata().unwrap().len(), 4096);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a page, written to once, and replaced by another one; nobody else knows of it.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().write_volatile(1);
        println!("ready");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(page, 4096, access, flags, -1, 0);
    }
    std::thread::sleep(Duration::from_secs(300));
}

/// Whether its mappings can be listed within a quarter of a second.
fn is_locked(pid: u32) -> bool {
    let (told, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::fs::read(format!("/proc/{pid}/smaps"));
        let _ = told.send(());
    });
    done.recv_timeout(Duration::from_millis(250)).is_err()
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_process_that_holds_its_mmap_lock_is_said_and_left_alone_and_holds_up_nobody() {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return hold_own_lock(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = match SilentFile::mount(folder.path()) {
        Ok(file) => file,
        Err(error) => return eprintln!("SKIPPED: cannot mount a FUSE file (needs root and /dev/fuse): {error}"),
    };
    let (scanner, _) = match choose(Preference::Best) {
        Ok(chosen) => chosen,
        Err(error) => return eprintln!("SKIPPED: cannot scan (needs root): {error}"),
    };
    let mut locked = Command::new(std::env::current_exe().unwrap());
    locked.args([
        "--exact",
        "--nocapture",
        "a_process_that_holds_its_mmap_lock_is_said_and_left_alone_and_holds_up_nobody",
    ]);
    let child = Guard(locked.env(VARIABLE, &file.path).stdout(Stdio::null()).spawn().unwrap());
    let mut locked = Locked { file, child };
    let other = Guard(Command::new("sleep").arg("300").spawn().unwrap());
    let (pid, others) = (locked.child.0.id(), other.0.id());
    eventually("the process holds its lock", || is_locked(pid));

    let options = Options {
        root: ProcRoot::default(),
        stop: None,
        duration: None,
        dry_run: false,
        contents: true,
        claims: None,
        actuator: None,
        table: true,
    };
    let mut host = LinuxHost::new(scanner, Box::new(Listed(vec![pid, others])), options);
    let seen = |host: &mut LinuxHost| {
        let began = Instant::now();
        let pids: Vec<u32> = host.observe(&WANTS).processes.iter().map(|view| view.id.pid).collect();
        let said = host.events().into_iter().filter_map(|event| match event {
            HostEvent::Notice(text) if text.contains("mmap_lock") => Some(text),
            _ => None,
        });
        (pids, host.unscanned(), said.collect::<Vec<_>>(), began.elapsed())
    };
    let (pids, unscanned, said, took) = seen(&mut host);
    assert_eq!((pids, unscanned), (vec![others], 1));
    assert!(said.len() == 1 && said[0].contains(&pid.to_string()), "{said:?}");
    assert!(took < LONG, "{took:?}");
    // The machine may be slow at one time, and not at five.
    let again = (0..5).map(|_| {
        let (pids, unscanned, said, took) = seen(&mut host);
        assert_eq!((pids, unscanned, said), (vec![others], 1, vec![]));
        took
    });
    let took = again.min().unwrap();
    assert!(
        took < Duration::from_millis(500),
        "{took:?}: it is not waited for again"
    );

    // Acting on it does not wait either.
    let started = stat::read(&ProcRoot::default(), pid).unwrap().start_ticks;
    let process = ProcessId { pid, started };
    let action = Action {
        process,
        region: Region(512),
        kind: ActionKind::Promote,
        reason: Reason::Mapped,
        utilization: None,
        benefit: BasePages(1),
        expect: Expect::Anything,
    };
    let began = Instant::now();
    assert_eq!(host.act(&action).error, Some(CallError::Busy));
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());

    // Nor does a look for people (`mega show`, `mega top`, `mega map`), which says why it sees nothing.
    let (mut scanner, _) = choose(Preference::Best).unwrap();
    let began = Instant::now();
    let shown = usage::read(&ProcRoot::default(), scanner.as_mut(), pid, &UsageOptions::default()).unwrap_err();
    let mapped = region_map(&ProcRoot::default(), scanner.as_mut(), pid, 1).unwrap_err();
    assert!(shown.is_locked() && mapped.is_locked(), "{shown}; {mapped}");
    assert!(shown.to_string().contains("mmap_lock"), "{shown}");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());

    locked.file.abort();
    eventually("it is managed again", || seen(&mut host).0.len() == 2);
}
