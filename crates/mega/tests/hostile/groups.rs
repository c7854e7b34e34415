//! Control groups of a test's own, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Removed when dropped, once what was in it has ended.
pub struct Group {
    folder: PathBuf,
    is_v1: bool,
}

impl Group {
    /// One with this controller; `None` where there is none to be had, which is said.
    pub fn new(controller: &str) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup").join(controller);
        let (parent, is_v1) = match v1.is_dir() {
            true => (v1, true),
            false => (PathBuf::from("/sys/fs/cgroup"), false),
        };
        if !is_v1 && controller != "freezer" {
            let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let folder = parent.join(format!("mega-test-{}", std::process::id()));
        let _ = fs::remove_dir(&folder);
        match fs::create_dir(&folder) {
            Ok(()) => Some(Self { folder, is_v1 }),
            Err(error) => {
                eprintln!("SKIPPED: no control group with {controller}: {error}");
                None
            }
        }
    }

    /// Sets a file by its name in version 1 or in version 2.
    pub fn set(&self, v1: &str, v2: &str, value: &str) -> bool {
        let set = fs::write(self.folder.join(if self.is_v1 { v1 } else { v2 }), value);
        if let Err(error) = &set {
            eprintln!("SKIPPED: {v2} of a control group cannot be set: {error}");
        }
        set.is_ok()
    }

    /// Freezes all in it, or lets it go on.
    pub fn freeze(&self, frozen: bool) -> bool {
        let (v1, v2) = if frozen { ("FROZEN", "1") } else { ("THAWED", "0") };
        self.set("freezer.state", "cgroup.freeze", if self.is_v1 { v1 } else { v2 })
    }

    pub fn add(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Has a command start in it.
    pub fn enter(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        let path = std::ffi::CString::new(self.folder.join("cgroup.procs").to_str().unwrap()).unwrap();
        // SAFETY: between fork and exec three system calls, on memory that was there before the fork.
        unsafe {
            command.pre_exec(move || {
                let fd = libc::open(path.as_ptr(), libc::O_WRONLY);
                if fd < 0 || libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(std::io::Error::last_os_error());
                }
                libc::close(fd);
                Ok(())
            });
        }
    }

    fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills what is in it until nobody is.
    pub fn clear(&self) {
        let began = std::time::Instant::now();
        while began.elapsed() < super::LONG {
            let pids = self.pids();
            if pids.is_empty() {
                return;
            }
            pids.iter()
                .for_each(|pid| super::signal(*pid, rustix::process::Signal::KILL));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.clear();
        // The kernel lets go of what has ended a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
