//! hugetlb pages set aside for a run, and put back with its other settings.
//!
//! Pages of the kernel's pool are no free memory, so no host takes them back; but it may have taken what they are made of. So they are
//! touched once.

use std::path::PathBuf;

use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::proc::ProcRoot;
use memomania_layout::page::Kind;

use crate::memory::{touch_hugetlb, MemoryError};

/// Why pages were not set aside.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// There is not so much contiguous memory.
    #[error(
        "{wanted} hugetlb pages of {kind} are wanted, and {free} could be had: no more contiguous memory{}",
        if *.kind == Kind::Gigantic { " (a machine long in use has few; reserve them at boot)" } else { "" }
    )]
    Short {
        /// Of this size.
        kind: Kind,
        /// How many.
        wanted: u64,
        /// How many there are.
        free: u64,
    },
    /// The kernel or the processor has none of this size.
    #[error("this kernel or processor has no hugetlb pages of {0}")]
    None(Kind),
    /// The setting cannot be read or changed.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// They were there, and are gone.
    #[error("cannot use the hugetlb pages that were set aside: {0}")]
    Memory(#[from] MemoryError),
}

/// hugetlb's files of one size.
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

    /// Free, and promised to nobody.
    fn free(&self, knobs: &Knobs) -> Result<u64, ReserveError> {
        let free = self.number(knobs, "free_hugepages")?;
        Ok(free.saturating_sub(self.number(knobs, "resv_hugepages")?))
    }

    /// Has the kernel set so many aside that `wanted` are free, compacting once where it is short.
    fn raise(&self, knobs: &mut Knobs, wanted: u64) -> Result<(), ReserveError> {
        let path = self.folder.join("nr_hugepages");
        for is_last in [false, true] {
            let missing = wanted.saturating_sub(self.free(knobs)?);
            if missing == 0 {
                return Ok(());
            }
            let target = self.number(knobs, "nr_hugepages")? + missing;
            if knobs.raise(&path, target)? < target && !is_last {
                // Where it is refused, the second try says what there is.
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

/// Sets pages aside, the kinds in this order, and touches them. Restoring `knobs` puts that back. Returns the bytes.
///
/// # Errors
/// There are not so many; what was set aside until then is put back with the knobs.
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
    fn too_few_pages_are_said_with_their_number_and_put_back() {
        let (_folder, root, mut knobs) = machine("2");
        let error = reserve(&root, &mut knobs, &[(Kind::Gigantic, 4)]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("4 hugetlb pages of 1G are wanted, and 1 could be had"),
            "{text}"
        );
        let file = root.sys.join("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages");
        assert_ne!(std::fs::read_to_string(&file).unwrap().trim(), "2");
        knobs.restore().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "2");
    }

    #[test]
    fn a_size_that_the_machine_has_not_is_said() {
        let (_folder, root, mut knobs) = machine("2");
        let error = reserve(&root, &mut knobs, &[(Kind::Huge, 4)]).unwrap_err();
        assert!(error.to_string().contains("no hugetlb pages of 2M"), "{error}");
        assert_eq!(reserve(&root, &mut knobs, &[(Kind::Huge, 0)]).unwrap(), 0);
    }
}
