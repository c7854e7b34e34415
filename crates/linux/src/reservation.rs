//! Reservations of huge pages at faults, where the kernel has the series of `kernel/reservation`: what it allows, how a
//! program asks, what came of it.

use std::process::Command;

use crate::error::{Error, Result};
use crate::proc::{meminfo, read_bounded, vmstat, ProcRoot, SMALL_BYTES};
use crate::sys;

/// Base pages of a block: the highest threshold.
pub const MAX_THRESHOLD: u32 = 512;

/// What the machine's owner set under `transparent_hugepage/reserve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservations {
    /// Whether programs that ask get reservations (`enabled` is not `never`).
    pub is_allowed: bool,
    /// Populated base pages from which a block is mapped huge, for those that do not say.
    pub threshold: u32,
    /// How long a reservation may be idle before it is released, in milliseconds.
    pub idle_ms: Option<u64>,
}

/// Reads it; none where the kernel has no reservations.
///
/// # Errors
/// If the files are there and not as expected.
pub fn read(root: &ProcRoot) -> Result<Option<Reservations>> {
    let folder = root.thp("reserve");
    if !folder.exists() {
        return Ok(None);
    }
    let word = |name: &str| {
        let path = folder.join(name);
        read_bounded(&path, SMALL_BYTES).map(|text| (path, String::from_utf8_lossy(&text).trim().to_owned()))
    };
    let number = |name: &str| {
        let (path, text) = word(name)?;
        text.parse::<u64>()
            .map_err(|_| Error::format(&path, 1, name, "a number", &text))
    };
    let (_, enabled) = word("enabled")?;
    Ok(Some(Reservations {
        is_allowed: !enabled.contains("[never]"),
        threshold: u32::try_from(number("threshold")?).unwrap_or(MAX_THRESHOLD),
        idle_ms: number("idle_ms").ok(),
    }))
}

/// Has the command, once it runs, and all that comes of it reserve a block at the first fault of a region and map it huge
/// from `threshold` populated pages on. The start fails with EINVAL on a kernel that cannot.
pub fn ask_before_exec(command: &mut Command, threshold: u32) {
    sys::reserve_before_exec(command, threshold);
}

/// The machine's counters of reservations, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks reserved.
    pub reserved: u64,
    /// Faults that found no block to reserve.
    pub without_block: u64,
    /// Pages populated in reservations after their first.
    pub populated: u64,
    /// Reservations mapped huge in place.
    pub promoted: u64,
    /// Released because they were idle, or under pressure.
    pub released: u64,
    /// Bytes reserved now and not populated.
    pub unpopulated_bytes: u64,
}

impl Counters {
    /// What was added since an earlier look; the bytes are those of now.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reserved: self.reserved.saturating_sub(earlier.reserved),
            without_block: self.without_block.saturating_sub(earlier.without_block),
            populated: self.populated.saturating_sub(earlier.populated),
            promoted: self.promoted.saturating_sub(earlier.promoted),
            released: self.released.saturating_sub(earlier.released),
            unpopulated_bytes: self.unpopulated_bytes,
        }
    }
}

/// Reads the counters.
///
/// # Errors
/// If /proc/vmstat or /proc/meminfo cannot be read.
pub fn counters(root: &ProcRoot) -> Result<Counters> {
    let stat = vmstat::read(root)?;
    let of = |name: &str| stat.get(name).unwrap_or(0);
    Ok(Counters {
        reserved: of("thp_reserve_alloc"),
        without_block: of("thp_reserve_alloc_failed"),
        populated: of("thp_reserve_fault"),
        promoted: of("thp_reserve_promote"),
        released: of("thp_reserve_release"),
        unpopulated_bytes: meminfo::read(root)?.anon_reserved_bytes.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(enabled: &str, threshold: &str) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        fs::create_dir_all(root.thp("reserve")).unwrap();
        fs::write(root.thp("reserve/enabled"), enabled).unwrap();
        fs::write(root.thp("reserve/threshold"), threshold).unwrap();
        fs::write(root.thp("reserve/idle_ms"), "5000\n").unwrap();
        (folder, root)
    }

    #[test]
    fn a_kernel_without_reservations_has_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&ProcRoot::under(folder.path())).unwrap(), None);
    }

    #[test]
    fn what_the_owner_set_is_read_and_nonsense_is_an_error_with_its_path() {
        let (_folder, root) = machine("always [madvise] never\n", "256\n");
        let found = read(&root).unwrap().unwrap();
        assert_eq!(
            (found.is_allowed, found.threshold, found.idle_ms),
            (true, 256, Some(5000))
        );
        let (_folder, root) = machine("always madvise [never]\n", "64\n");
        assert!(!read(&root).unwrap().unwrap().is_allowed);
        let (_folder, root) = machine("[always]\n", "many\n");
        assert!(read(&root).unwrap_err().to_string().contains("reserve/threshold"));
    }

    #[test]
    fn counters_are_the_difference_of_two_looks() {
        let (folder, root) = machine("[always]\n", "64\n");
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let write = |alloc: u64, promote: u64| {
            let text = format!("thp_reserve_alloc {alloc}\nthp_reserve_promote {promote}\nthp_reserve_fault 9\n");
            fs::write(folder.path().join("proc/vmstat"), text).unwrap();
        };
        fs::write(
            folder.path().join("proc/meminfo"),
            "MemTotal: 1 kB\nAnonReserved: 2048 kB\n",
        )
        .unwrap();
        write(3, 1);
        let before = counters(&root).unwrap();
        write(10, 5);
        let grown = counters(&root).unwrap().since(before);
        assert_eq!((grown.reserved, grown.promoted, grown.populated), (7, 4, 0));
        assert_eq!(grown.unpopulated_bytes, 2 << 20);
    }

    #[test]
    fn asking_a_kernel_that_cannot_fails_at_the_start() {
        if read(&ProcRoot::default()).unwrap().is_some() {
            return;
        }
        let mut command = Command::new("true");
        ask_before_exec(&mut command, 64);
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}
