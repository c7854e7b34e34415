//! mega.ko on the kernel that runs: `tests/vm/run` with MEGA_VM_MODULE=1 loads it on Debian's. Where it is not loaded every test says so.
//!
//! | file | subject |
//! | --- | --- |
//! | `memory` | memory of our own whose frames and contents are known |
//! | `calls` | who may call, and what is refused with which errno |
//! | `bounds` | how long a call takes |
//! | `blocks` | what blocks hold |
//! | `compact` | chosen blocks emptied |
//! | `age` | accessed bits |
//! | `device` | a device's memory, which has no struct pages |
//! | `probe` | allocations timed |
//! | `unload` | the module goes, and comes back |
//! | `storm` | random calls in every state of the machine |

use std::sync::{Mutex, MutexGuard};

use mega_linux::module::{Module, ModuleError};

mod age;
mod blocks;
mod bounds;
mod calls;
mod compact;
mod device;
mod memory;
mod probe;
mod storm;
mod unload;

/// The module, and the turn: tests drive the machine's memory, one at a time.
struct Turn {
    module: Module,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Turn {
    type Target = Module;

    fn deref(&self) -> &Module {
        &self.module
    }
}

fn module() -> Option<Turn> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    match Module::open() {
        Ok(module) => Some(Turn { module, _turn: turn }),
        Err(error @ (ModuleError::Absent(_) | ModuleError::Refused { .. })) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// So many seconds, or ten times as many on a kernel that checks each of its steps.
fn patience(seconds: u64) -> std::time::Duration {
    let checks = std::path::Path::new("/proc/lockdep_stats").exists();
    std::time::Duration::from_secs(if checks { seconds * 10 } else { seconds })
}

/// A counter of /proc/vmstat.
fn vmstat(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
}

/// Free chunks of 2 MB and more, in blocks, as the buddy allocator counts them, once the processors have given back what they keep.
fn free_blocks() -> u64 {
    for _ in 0..64 {
        let _ = std::fs::read("/proc/sys/vm/stat_refresh");
    }
    let root = mega_linux::proc::ProcRoot::default();
    mega_linux::proc::buddyinfo::read(&root).unwrap().free_blocks().0
}
