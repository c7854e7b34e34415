//! What hugetlb needs when the program forks.
//!
//! After a fork, parent and child share pages until one of them writes, which takes a new page. For hugetlb that page may not be there: the
//! kernel then takes the shared one from the child, which dies of SIGBUS when it touches it. So where free pages may be too
//! few, the child gets a copy on base pages, at once, while the parent waits. It is told of the end by a pipe, which also ends if the child dies.
//!
//! Children made otherwise (vfork, posix_spawn, clone without the C library) have no such care; the first two share memory until they execute
//! another program, and need none.

use std::cell::UnsafeCell;

use memomania_layout::page::Kind;
use memomania_layout::settings::Fork;

use crate::report::{self, Event};
use crate::start::{self, Locked, World};
use crate::sys;

/// What `prepare` leaves to `parent` and `child`.
struct Pending {
    locked: Locked,
    pipe: Option<(i32, i32)>,
}

struct Cell(UnsafeCell<Option<Pending>>);

// SAFETY: only the thread that holds the lock uses it.
unsafe impl Sync for Cell {}

static PENDING: Cell = Cell(UnsafeCell::new(None));

/// Has the C library call us around each fork.
pub fn register() {
    // SAFETY: the three functions live as long as the process: the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

unsafe extern "C" fn prepare() {
    if !start::ready() {
        return;
    }
    let mut locked = start::lock();
    let pipe = needs_copy(&locked).then(sys::pipe).and_then(Result::ok);
    if pipe.is_some() {
        for pool in locked.pools.iter_mut().flatten() {
            // What cannot be protected for a moment is not there to be lost either.
            let _ = pool.touch_all();
        }
    }
    // SAFETY: we hold the lock.
    unsafe { *PENDING.0.get() = Some(Pending { locked, pipe }) };
}

fn take() -> Option<Pending> {
    // SAFETY: this thread, or the one it was before the fork, holds the lock since `prepare`.
    unsafe { (*PENDING.0.get()).take() }
}

unsafe extern "C" fn parent() {
    if let Some(Pending { locked, pipe }) = take() {
        if let Some((read, write)) = pipe {
            sys::close(write);
            // The end of the pipe: the child is ready, or is no more, or never was.
            let mut byte = [0];
            while sys::read(read, &mut byte) == Err(sys::Errno(libc::EINTR)) {}
            sys::close(read);
            report::count(Event::ForkCopy);
        }
        drop(locked);
    }
}

unsafe extern "C" fn child() {
    if let Some(Pending { mut locked, pipe }) = take() {
        locked.after_fork();
        if let Some((read, write)) = pipe {
            sys::close(read);
            for pool in locked.pools.iter_mut().flatten() {
                if pool.copy_all().is_err() {
                    sys::tell(format_args!(
                        "no memory to copy huge pages for a forked process; it may be killed"
                    ));
                }
            }
            sys::close(write);
        }
        drop(locked);
    }
}

/// Free pages may be too few for both to have their own.
fn needs_copy(world: &World) -> bool {
    let is_short = |kind: Kind, folder: &str| {
        let pages: usize = world
            .pools
            .iter()
            .flatten()
            .map(|pool| pool.hugetlb_bytes(kind))
            .sum::<usize>()
            / kind.bytes();
        if pages == 0 {
            return false;
        }
        let free = number(folder, "free_hugepages").unwrap_or(0);
        let promised = number(folder, "resv_hugepages").unwrap_or(0);
        match world.settings.fork {
            Fork::Share => false,
            Fork::Copy => true,
            Fork::Auto => free.saturating_sub(promised) < 2 * pages,
        }
    };
    is_short(Kind::Huge, "hugepages-2048kB") | is_short(Kind::Gigantic, "hugepages-1048576kB")
}

/// A number in one of the kernel's files about hugetlb.
fn number(folder: &str, file: &str) -> Option<usize> {
    let mut path = sys::Line::new();
    std::fmt::Write::write_fmt(&mut path, format_args!("/sys/kernel/mm/hugepages/{folder}/{file}\0")).ok()?;
    let fd = sys::open(path.bytes(), libc::O_RDONLY).ok()?;
    let mut digits = [0; 32];
    let length = sys::read(fd, &mut digits);
    sys::close(fd);
    std::str::from_utf8(&digits[..length.ok()?]).ok()?.trim().parse().ok()
}
