//! What a control group counts of programs' memory, against what their resident sizes say.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mega_lab::prepare::group::Group;
use mega_linux::proc::{status, ProcRoot};
use mega_linux::process::family::Family;
use rustix::process::{kill_process, Pid, Signal};

const MIB: u64 = 256;

/// Ends with the test, failed or not.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memory_that_forked_children_share_counts_once() {
    let root = ProcRoot::default();
    let group = match Group::make(&root, None) {
        Ok(group) => group,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    // In the group before it takes memory.
    let script = format!("kill -STOP $$; exec \"$0\" forks --mib {MIB} --times 1000000");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_mega-workload")]);
    let child = Ended(command.stdout(Stdio::null()).spawn().unwrap());
    let pid = child.0.id();
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "));
    let begun = Instant::now();
    while !is_stopped() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
    group.add(pid as i32).unwrap();
    kill_process(Pid::from_child(&child.0), Signal::CONT).unwrap();
    let mut family = Family::default();
    family.add(pid);
    let (mut resident, mut counted) = (0, 0);
    // Until a child was there at the moment of a look.
    while resident < (2 * MIB) << 20 {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "no child is seen: {} MB",
            resident >> 20
        );
        let _ = family.look(&root);
        let of = |pid| status::read(&root, pid).ok()?.memory.rss_bytes;
        let together = family.members().filter_map(|member| of(member.pid)).sum();
        resident = resident.max(together);
        counted = counted.max(group.account().taken_bytes().unwrap());
    }
    drop(child);
    let counted_mib = counted >> 20;
    assert!((MIB - 8..MIB + 64).contains(&counted_mib), "{counted_mib} MB");
}
