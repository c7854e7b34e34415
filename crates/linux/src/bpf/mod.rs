//! The eBPF programs, compiled, and libbpf's messages about them: `scan.bpf.c` (with `entries.h`, `passes.h` and its contract `intf.h`),
//! `faults.bpf.c`, `tasks.bpf.c` and `waits.bpf.c`.

pub(crate) mod libbpf;

/// The page-table reader; empty where it could not be built.
pub(crate) static SCAN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scan.bpf.o"));
/// The page-fault probes; empty where they could not be built.
pub(crate) static FAULTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/faults.bpf.o"));
/// The table of processes and its changes; empty where it could not be built.
pub(crate) static TASKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));

/// Who waits for a process's mmap_lock; empty where it could not be built.
pub(crate) static WAITS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waits.bpf.o"));

/// Why an object is empty; `None` for one that was built.
pub(crate) fn absence(object: &[u8]) -> Option<&'static str> {
    match object {
        [_, ..] => None,
        [] if cfg!(target_arch = "x86_64") => Some("built without eBPF (no clang at build time)"),
        [] => Some("built without eBPF (it is for x86-64 only)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_says_why_it_is_empty() {
        assert!(absence(b"").unwrap().starts_with("built without eBPF ("));
        assert_eq!(absence(b"\x7fELF"), None);
    }
}
