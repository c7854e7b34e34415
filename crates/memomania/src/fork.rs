//! What hugetlb needs when the program forks.
//!
//! After a fork, parent and child share pages until one of them writes, which takes a new page. For hugetlb that page may not be there: the
//! kernel then takes the shared one from the child, which dies of SIGBUS when it touches it. And the C library writes to memory that it has from
//! malloc (locks of streams and of the name service) between our handlers and the fork, and in the child before our handlers. So:
//!
//! - Where that costs little and there are free pages enough, the child gets a copy on base pages, at once, while the parent waits. It is told
//!   of the end by a pipe, which also ends if the child dies.
//! - Where free pages may be too few, the parent has base pages stand in for its hugetlb pages before the fork, and takes hugetlb pages back
//!   after it. Nothing is protected or missing in between. Where pages are gone by then, it keeps base pages.
//! - Gigantic pages are never shared: the kernel may forget them in the child ([`Pool::settle_hugetlb`]). Base pages always stand in for them.
//!   Without memory for those, the child has nothing there, and ends when it touches it.
//!
//! A stack that the program has put on such pages is moved to base pages before.
//!
//! Children made otherwise (vfork, posix_spawn, _Fork, clone without the C library) have no such care; the first two share memory until they
//! execute another program, and need none. The others have no gigantic pages.

use std::cell::UnsafeCell;

use memomania_layout::page::{Kind, HUGE};
use memomania_layout::settings::Fork;

use crate::report::{self, Event};
use crate::sys;
use crate::world::{self, Locked, World};

/// Bytes of hugetlb pages that are copied in any case: it takes some ten milliseconds at most.
const CHEAP: usize = 64 << 20;

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
    if !world::ready() {
        return;
    }
    let mut locked = world::lock();
    let need = need(&locked);
    let has_gigantic = bytes(&locked, Kind::Gigantic) > 0;
    let pipe = (need == Need::Copy).then(sys::pipe).and_then(Result::ok);
    if need != Need::Nothing || has_gigantic {
        for pool in locked.pools.iter_mut().flatten() {
            if pipe.is_some() {
                // What cannot be protected for a moment is not there to be lost either.
                let _ = pool.touch_all();
            }
            // What cannot be replaced the child shares, or has not: it says so.
            let _ = pool.make_stack_ordinary();
            let _ = pool.lend(Kind::Gigantic);
            if need == Need::StandIn {
                let _ = pool.lend(Kind::Huge);
            }
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
    if let Some(Pending { mut locked, pipe }) = take() {
        let mut copies = pipe.is_some();
        for pool in locked.pools.iter_mut().flatten() {
            copies |= pool.take_back();
        }
        if copies {
            report::count(Event::ForkCopy);
        }
        if let Some((read, write)) = pipe {
            sys::close(write);
            // A byte: the child is ready. The end of the pipe: it is no more, or never was.
            let mut byte = [0];
            while sys::read(read, &mut byte) == Err(sys::Errno(libc::EINTR)) {}
            sys::close(read);
        }
        drop(locked);
    }
}

unsafe extern "C" fn child() {
    if let Some(Pending { mut locked, pipe }) = take() {
        locked.after_fork();
        let mut is_whole = true;
        for pool in locked.pools.iter_mut().flatten() {
            pool.keep();
            is_whole &= !pool.lose_gigantic();
        }
        if let Some((read, write)) = pipe {
            sys::close(read);
            for pool in locked.pools.iter_mut().flatten() {
                is_whole &= pool.copy_all().is_ok();
            }
            let _ = sys::write(write, &[1]);
            sys::close(write);
        }
        if !is_whole {
            sys::tell(format_args!(
                "no memory to copy huge pages for a forked process; it ends when it uses them"
            ));
        }
        drop(locked);
    }
}

/// What a fork needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Pages can be shared.
    Nothing,
    /// A copy.
    Copy,
    /// Base pages that stand in for them: there are no pages for writes after the fork.
    StandIn,
}

/// Bytes of hugetlb pages of this kind that are there.
fn bytes(world: &World, kind: Kind) -> usize {
    world.pools.iter().flatten().map(|pool| pool.hugetlb_bytes(kind)).sum()
}

/// What 2 MB pages need.
fn need(world: &World) -> Need {
    let bytes = bytes(world, Kind::Huge);
    if bytes == 0 || world.settings.fork == Fork::Share {
        return Need::Nothing;
    }
    let free = number("free_hugepages").unwrap_or(0);
    let free = free.saturating_sub(number("resv_hugepages").unwrap_or(0));
    match (
        world.settings.fork == Fork::Copy || bytes <= CHEAP,
        free < 3 * bytes / HUGE,
    ) {
        (false, false) => Need::Nothing,
        (true, false) => Need::Copy,
        (_, true) => Need::StandIn,
    }
}

/// A number in one of the kernel's files about 2 MB pages.
fn number(file: &str) -> Option<usize> {
    let mut path = sys::Line::new();
    std::fmt::Write::write_fmt(
        &mut path,
        format_args!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}\0"),
    )
    .ok()?;
    let fd = sys::open(path.bytes(), libc::O_RDONLY).ok()?;
    let mut digits = [0; 32];
    let length = sys::read(fd, &mut digits);
    sys::close(fd);
    std::str::from_utf8(&digits[..length.ok()?]).ok()?.trim().parse().ok()
}
