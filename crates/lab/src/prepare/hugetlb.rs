//! hugetlb pages reserved for a run, and released with its other settings.
//!
//! The host cannot reclaim pages of the kernel's pool, but it may have reclaimed their memory before: they are touched once.

use std::path::PathBuf;

use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::proc::ProcRoot;
use memomania_layout::page::Kind;

use crate::memory::{touch_hugetlb, MemoryError};

/// Why pages were not reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// Not enough contiguous memory.
    #[error(
        "{wanted} hugetlb pages of {kind} requested, {free} available: not enough contiguous memory{}",
        if *.kind == Kind::Gigantic { " (reserve them at boot)" } else { "" }
    )]
    Short {
        /// Of this size.
        kind: Kind,
        /// How many.
        wanted: u64,
        /// How many there are.
        free: u64,
    },
    /// The kernel or the processor does not support this size.
    #[error("this kernel or processor has no hugetlb pages of {0}")]
    None(Kind),
    /// The setting cannot be read or changed.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// Reserved pages could not be used.
    #[error("cannot use the reserved hugetlb pages: {0}")]
    Memory(#[from] MemoryError),
}

/// The kernel's pool of one size.
struct Pool<'a> {
    kind: Kind,
    folder: PathBuf,
    root: &'a ProcRoot,
}

impl Pool<'_> {
    fn number(&self, knobs: &Knobs, file: &str) -> Result<u64, ReserveError> {
        let text = knobs.get(&self.folder.join(file))?;
        Ok(text.trim().parse().unwrap_or(0))
    }

    /// Free and unreserved.
    fn free(&self, knobs: &Knobs) -> Result<u64, ReserveError> {
        let free = self.number(knobs, "free_hugepages")?;
        Ok(free.saturating_sub(self.number(knobs, "resv_hugepages")?))
    }

    /// Grows the pool until `wanted` pages are free, compacting once if it falls short.
    fn raise(&self, knobs: &mut Knobs, wanted: u64) -> Result<(), ReserveError> {
        let path = self.folder.join("nr_hugepages");
        for is_last in [false, true] {
            let missing = wanted.saturating_sub(self.free(knobs)?);
            if missing == 0 {
                return Ok(());
            }
            let target = self.number(knobs, "nr_hugepages")? + missing;
            if knobs.raise(&path, target)? < target && !is_last {
                // If this is refused, the second attempt reports what is free.
                let _ = std::fs::write(self.root.proc.join("sys/vm/compact_memory"), "1");
            }
        }
        match self.free(knobs)? {
            free if free < wanted => Err(ReserveError::Short {
                kind: self.kind,
                wanted,
                free,
            }),
            _ => Ok(()),
        }
    }
}

/// Reserves pages, the sizes in this order, and touches them. Restoring `knobs` releases them. Returns the bytes.
///
/// # Errors
/// There are not enough; those reserved so far are released with the knobs.
pub fn reserve(root: &ProcRoot, knobs: &mut Knobs, pages: &[(Kind, u64)]) -> Result<u64, ReserveError> {
    let mut bytes = 0;
    for (kind, wanted) in pages.iter().filter(|(_, wanted)| *wanted > 0) {
        let folder = root.sys.join("kernel/mm/hugepages");
        let folder = folder.join(format!("hugepages-{}kB", kind.bytes() >> 10));
        if !folder.is_dir() {
            return Err(ReserveError::None(*kind));
        }
        let pool = Pool {
            kind: *kind,
            folder,
            root,
        };
        pool.raise(knobs, *wanted)?;
        touch_hugetlb(kind.bytes(), usize::try_from(*wanted).unwrap_or(usize::MAX))?;
        bytes += wanted * kind.bytes() as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up machine whose pool never grows.
    fn machine(free: &str) -> (tempfile::TempDir, ProcRoot, Knobs) {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        let pool = root.sys.join("kernel/mm/hugepages/hugepages-1048576kB");
        std::fs::create_dir_all(&pool).unwrap();
        for (file, text) in [("nr_hugepages", "2"), ("free_hugepages", free), ("resv_hugepages", "1")] {
            std::fs::write(pool.join(file), text).unwrap();
        }
        let knobs = Knobs::open(root.clone(), &folder.path().join("state")).unwrap();
        (folder, root, knobs)
    }

    #[test]
    fn too_few_pages_are_reported_with_their_number_and_released() {
        let (_folder, root, mut knobs) = machine("2");
        let error = reserve(&root, &mut knobs, &[(Kind::Gigantic, 4)]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("4 hugetlb pages of 1G requested, 1 available"), "{text}");
        let file = root.sys.join("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages");
        assert_ne!(std::fs::read_to_string(&file).unwrap().trim(), "2");
        knobs.restore().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "2");
    }

    #[test]
    fn an_unsupported_size_is_reported() {
        let (_folder, root, mut knobs) = machine("2");
        let error = reserve(&root, &mut knobs, &[(Kind::Huge, 4)]).unwrap_err();
        assert!(error.to_string().contains("no hugetlb pages of 2M"), "{error}");
        assert_eq!(reserve(&root, &mut knobs, &[(Kind::Huge, 0)]).unwrap(), 0);
    }
}
