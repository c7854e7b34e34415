//! Processor time of the kernel's compaction threads, `kcompactdN`.

use std::time::Duration;

use crate::proc::{read_bounded, stat, task, ProcRoot};

/// Their PIDs; empty where they cannot be seen.
pub fn find(root: &ProcRoot) -> Vec<u32> {
    // Kernel threads are among the first processes of a boot.
    let all = task::processes(root).unwrap_or_default().into_iter();
    let is_one = |pid: &u32| {
        stat::read(root, *pid).is_ok_and(|stat| stat.is_kernel_thread() && stat.comm.starts_with("kcompactd"))
    };
    all.filter(is_one).collect()
}

/// Processor time of all of them since boot: from schedstat (ns), or from stat (10 ms) without CONFIG_SCHED_INFO.
pub fn cpu_time(root: &ProcRoot, threads: &[u32]) -> Duration {
    let precise = |pid: u32| {
        let text = read_bounded(&root.of_process(pid, "schedstat"), 4096).ok()?;
        let text = String::from_utf8(text).ok()?;
        let ns: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        (ns > 0).then(|| Duration::from_nanos(ns))
    };
    let coarse = |pid: u32| {
        let stat = stat::read(root, pid).ok()?;
        Some(Duration::from_millis(10 * (stat.user_ticks + stat.system_ticks)))
    };
    threads
        .iter()
        .filter_map(|&pid| precise(pid).or_else(|| coarse(pid)))
        .sum()
}
