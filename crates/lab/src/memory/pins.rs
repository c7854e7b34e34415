//! Pages pinned by pipes. `vmsplice(2)` puts pages into a pipe without copying: the pipe holds a reference to each while it
//! is open, and a page with such a reference can neither be migrated nor reclaimed: fragmentation that compaction cannot undo.

use super::{base_page_bytes, Mapping};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::io;

/// Why pages cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The limits on pipes of a user without privileges.
    #[error(
        "pipes hold {held} pages and no more: the limits of /proc/sys/fs/pipe-max-size and pipe-user-pages-soft; \
         root (CAP_SYS_RESOURCE) has none"
    )]
    Limit {
        /// Pages pinned so far.
        held: u64,
    },
    /// No more open files.
    #[error("pipes hold {held} pages; the limit of open files (ulimit -n) is reached")]
    Files {
        /// Pages pinned so far.
        held: u64,
    },
    /// Another system call failed.
    #[error("cannot pin pages in a pipe: {0}")]
    System(#[from] io::Error),
}

/// Slots to request for a pipe, one page each; the first that the kernel grants is used. Fewer slots need more pipes, but a slot costs
/// 40 bytes of contiguous kernel memory, which is scarce where memory is fragmented.
const SLOTS: [usize; 3] = [4096, 1024, 256];

/// Pages in one call: the kernel's limit on the vector (UIO_MAXIOV).
const PER_CALL: usize = 1024;

/// Pages of mappings, pinned until this is dropped. Unmapping them does not free them before that.
#[derive(Debug, Default)]
pub struct Pins {
    pipes: Vec<(OwnedFd, OwnedFd)>,
    held: u64,
}

impl Pins {
    /// Pins nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages pinned.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.held
    }

    /// Pins these base pages of the mapping, which must have been written before.
    ///
    /// # Errors
    /// When no more can be pinned; those before stay pinned.
    pub fn hold(&mut self, mapping: &Mapping, pages: &[usize]) -> Result<(), PinError> {
        let mut left = pages;
        while !left.is_empty() {
            let some = &left[..left.len().min(PER_CALL)];
            let taken = match self.pipes.last() {
                Some((_, into)) => splice(into, mapping, some)?,
                None => 0,
            };
            self.held += taken as u64;
            left = &left[taken..];
            if taken == 0 {
                self.add_pipe()?;
            }
        }
        Ok(())
    }

    fn add_pipe(&mut self) -> Result<(), PinError> {
        let held = self.held;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let pipe = match rustix::pipe::pipe_with(flags) {
            // A process may raise its soft limit.
            Err(Errno::MFILE) if raise_file_limit() => rustix::pipe::pipe_with(flags),
            made => made,
        };
        let pipe = pipe.map_err(|errno| match errno {
            Errno::MFILE | Errno::NFILE => PinError::Files { held },
            errno => PinError::System(errno.into()),
        })?;
        for slots in SLOTS {
            match rustix::pipe::fcntl_setpipe_size(pipe.1.as_fd(), slots * base_page_bytes()) {
                Ok(_) => {
                    self.pipes.push(pipe);
                    return Ok(());
                }
                Err(Errno::PERM | Errno::NOMEM) => {}
                Err(errno) => return Err(PinError::System(errno.into())),
            }
        }
        Err(PinError::Limit { held })
    }
}

/// Raises the soft limit of open files to the hard limit; false if it is there already.
fn raise_file_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let higher = Rlimit {
        current: limit.maximum,
        ..limit
    };
    limit.current != limit.maximum && setrlimit(Resource::Nofile, higher).is_ok()
}

/// Puts pages into the pipe until it is full; returns how many.
fn splice(pipe: &OwnedFd, mapping: &Mapping, pages: &[usize]) -> Result<usize, PinError> {
    let page = base_page_bytes();
    let vector: Vec<libc::iovec> = pages
        .iter()
        .map(|at| libc::iovec {
            iov_base: mapping.page_words(*at).as_ptr() as *mut libc::c_void,
            iov_len: page,
        })
        .collect();
    // SAFETY: every address is that of a page of the mapping, which is alive; without SPLICE_F_GIFT the pages stay ours, and
    // the kernel does no more than take references to them.
    let bytes = unsafe { libc::vmsplice(pipe.as_raw_fd(), vector.as_ptr(), vector.len(), libc::SPLICE_F_NONBLOCK) };
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(bytes / page),
        Err(_) => match io::Error::last_os_error() {
            full if full.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error => Err(PinError::System(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::content;
    use crate::memory::{HUGE_BYTES, MADV_COLLAPSE};

    #[test]
    fn pages_are_held_over_more_than_one_pipe_and_keep_their_content() {
        let mapping = Mapping::new(8 << 20).unwrap();
        content::fill(mapping.words(), 3);
        let mut pins = Pins::new();
        let pages: Vec<usize> = (0..2048).step_by(3).collect();
        pins.hold(&mapping, &pages).unwrap();
        assert_eq!(pins.pages(), pages.len() as u64);
        drop(pins);
        assert_eq!(content::verify(mapping.words(), 3), Ok(()));
    }

    /// Collapsing isolates and moves pages as migration does, and refuses what somebody else has a reference to.
    #[test]
    fn a_held_page_cannot_be_moved_until_it_is_let_go() {
        let mut mapping = Mapping::new(2 * HUGE_BYTES).unwrap();
        let _ = mapping.advise(0..2 * HUGE_BYTES, libc::MADV_NOHUGEPAGE);
        content::fill(mapping.words(), 3);
        let _ = mapping.advise(0..2 * HUGE_BYTES, libc::MADV_HUGEPAGE);
        if let Err(error) = mapping.advise(0..HUGE_BYTES, MADV_COLLAPSE) {
            eprintln!("SKIPPED: {error}");
            return;
        }
        let mut pins = Pins::new();
        pins.hold(&mapping, &[700]).unwrap();
        assert!(mapping.advise(HUGE_BYTES..2 * HUGE_BYTES, MADV_COLLAPSE).is_err());
        drop(pins);
        mapping.advise(HUGE_BYTES..2 * HUGE_BYTES, MADV_COLLAPSE).unwrap();
        assert_eq!(content::verify(mapping.words(), 3), Ok(()));
    }
}
