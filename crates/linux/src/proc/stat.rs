//! /proc/PID/stat: one line of numbers, with the start time that tells a process from a later one with the same PID.

use std::path::Path;

use mega_core::units::BASE_PAGE_BYTES;

use super::{read_bounded, At, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// PF_KTHREAD of the kernel's `include/linux/sched.h`, in the field `flags`.
const PF_KTHREAD: u32 = 0x0020_0000;
/// PF_EXITING, from there too.
const PF_EXITING: u32 = 4;

/// /proc/PID/stat, or a thread's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The PID, or the thread's number.
    pub pid: u32,
    /// Name, at most 15 bytes for a program; may hold anything, parentheses and line ends too.
    pub comm: String,
    /// One letter: R, S, D, T, t, Z (zombie), X (dead), I (idle kernel thread).
    pub state: char,
    /// The parent, as things are now: orphans belong to the nearest child subreaper.
    pub ppid: u32,
    /// The kernel's PF_* bits.
    pub flags: u32,
    /// Faults served without reading from a disk.
    pub minor_faults: u64,
    /// Faults that read from a disk.
    pub major_faults: u64,
    /// Processor time in user mode, in clock ticks (1/100 s).
    pub user_ticks: u64,
    /// Processor time in the kernel, in clock ticks (1/100 s).
    pub system_ticks: u64,
    /// Threads; of a zombie leader too.
    pub threads: u32,
    /// When it was started, in clock ticks (1/100 s) since boot.
    pub start_ticks: u64,
    /// Size of the address space in bytes; 0 for kernel threads and zombies.
    pub size_bytes: u64,
    /// Resident in bytes, by the kernel's fast counters: may be off by some hundred kilobytes per processor.
    pub rss_bytes: u64,
    /// The signal that its parent gets when it ends: SIGCHLD, or 0 for a helper that nobody is told of.
    pub exit_signal: Option<i32>,
}

impl Stat {
    /// A thread of the kernel's own: no memory to manage.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// This thread is about to end, or has: it has no memory any more, or soon none.
    pub fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0
    }

    /// This thread is over. Its process need not be: other threads may live on.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// The whole process is over, and only waits for its parent to ask for its status.
    pub fn is_over(&self) -> bool {
        self.is_zombie() && self.threads <= 1
    }
}

/// A process, by its main thread.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Stat> {
    let path = root.of_process(pid, "stat");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// One thread of a process.
pub fn read_thread(root: &ProcRoot, pid: u32, tid: u32) -> Result<Stat> {
    let path = root.of_thread(pid, tid, "stat");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a stat file; `path` is for messages only.
///
/// The name ends at the last closing parenthesis: everything after it is numbers and one letter.
pub fn parse(path: &Path, text: &[u8]) -> Result<Stat> {
    let text = String::from_utf8_lossy(text);
    let at = At { path, line: 1 };
    let (pid, rest) = text.split_once(" (").unwrap_or((&text, ""));
    let pid = at.number("pid", Some(pid))?;
    let Some((comm, rest)) = rest.rsplit_once(')') else {
        return Err(at.wrong("comm", "a name in parentheses", &text));
    };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().unwrap_or("");
    let mut letters = state.chars();
    let (Some(state), None) = (letters.next(), letters.next()) else {
        return Err(at.wrong("state", "one letter", state));
    };
    // Field numbers as in proc_pid_stat(5); the state was the third.
    let fields: Vec<&str> = fields.collect();
    let field = |number: usize| fields.get(number - 4).copied();
    Ok(Stat {
        pid,
        comm: comm.to_owned(),
        state,
        ppid: at.number("ppid", field(4))?,
        flags: at.number("flags", field(9))?,
        minor_faults: at.number("minflt", field(10))?,
        major_faults: at.number("majflt", field(12))?,
        user_ticks: at.number("utime", field(14))?,
        system_ticks: at.number("stime", field(15))?,
        threads: at.number("num_threads", field(20))?,
        start_ticks: at.number("starttime", field(22))?,
        size_bytes: at.number("vsize", field(23))?,
        rss_bytes: at.number::<u64>("rss", field(24))?.saturating_mul(BASE_PAGE_BYTES),
        exit_signal: field(38).and_then(|text| text.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: &str) -> String {
        format!("12 ({comm}) S 7 1 1 0 -1 4194304 100 0 3 0 11 22 0 0 20 0 5 0 987 4096 1 18446744073709551615\n")
    }

    #[test]
    fn names_with_parentheses_and_line_ends_are_read() {
        for comm in ["sh", ")", "a) R 1 (", "a\n) Z", "", "((", "ö )("] {
            let stat = parse(Path::new("stat"), line(comm).as_bytes()).unwrap();
            assert_eq!((stat.comm.as_str(), stat.ppid, stat.start_ticks), (comm, 7, 987));
            assert_eq!((stat.minor_faults, stat.major_faults, stat.threads), (100, 3, 5));
            assert!(!stat.is_exiting() && !stat.is_kernel_thread());
        }
    }

    #[test]
    fn a_line_cut_anywhere_is_an_error() {
        let whole = line("sh");
        let needed = whole.find(" 4096").unwrap();
        for cut in 0..=needed {
            assert!(parse(Path::new("stat"), &whole.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_missing_field_is_named() {
        let error = parse(Path::new("stat"), b"12 (sh) S 7 1 1 0 -1 x").unwrap_err();
        assert_eq!(error.to_string(), "stat:1: flags: expected a number, found 'x'");
    }
}
