//! What is there once the library is ready: settings and pools, behind the one lock.
//!
//! The first call of any of our functions makes it ready ([`ready`]); that may come from the loader, long before constructors run.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use memomania_layout::settings::Settings;

use crate::lock::{self, Guard};
use crate::pool::{Extent, Pool};
use crate::sys;

/// The pools, as [`memomania_layout::report::POOLS`] has them.
pub const HEAP: usize = 0;
/// The program break's: the heap's layout again.
pub const BRK: usize = 1;
/// Of anonymous private mappings.
pub const ANON: usize = 2;

/// Settings and pools.
pub struct World {
    pub settings: Settings<'static>,
    pub pools: [Option<Pool>; 3],
}

struct Cell {
    world: UnsafeCell<MaybeUninit<World>>,
    /// Outside of the lock: does not change.
    extents: UnsafeCell<[Extent; 3]>,
}

// SAFETY: written by the one thread that starts the library, before READY; after that the world is only reached with the lock held, and
// the extents are only read.
unsafe impl Sync for Cell {}

const NOWHERE: Extent = Extent { start: 0, end: 0 };

static CELL: Cell = Cell {
    world: UnsafeCell::new(MaybeUninit::uninit()),
    extents: UnsafeCell::new([NOWHERE; 3]),
};

const NEW: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NEW);
static STARTER: AtomicU32 = AtomicU32::new(0);

/// Makes the library ready. False only while this very thread is doing that.
#[inline]
pub fn ready() -> bool {
    STATE.load(Ordering::Acquire) == READY || start_slowly()
}

#[cold]
fn start_slowly() -> bool {
    if STATE
        .compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        STARTER.store(sys::thread(), Ordering::Relaxed);
        crate::START();
        STATE.store(READY, Ordering::Release);
        sys::futex_wake(&STATE, usize::MAX >> 33);
        return true;
    }
    if STARTER.load(Ordering::Relaxed) == sys::thread() && STATE.load(Ordering::Acquire) != READY {
        return false;
    }
    while STATE.load(Ordering::Acquire) != READY {
        sys::futex_wait(&STATE, STARTING);
    }
    true
}

/// Puts the world in place: by the starting thread, once. What comes between this and [`open`] sees no other thread in it.
pub fn set(world: World) -> &'static World {
    // SAFETY: only the starting thread comes here, once, and nobody reads before it is READY.
    let (place, extents) = unsafe { (&mut *CELL.world.get(), &mut *CELL.extents.get()) };
    for (extent, pool) in extents.iter_mut().zip(&world.pools) {
        *extent = pool.as_ref().map_or(NOWHERE, Pool::extent);
    }
    place.write(world)
}

/// Lets calls come to the pools, those of the starting thread's own allocator first.
pub fn open() {
    STATE.store(READY, Ordering::Release);
}

/// The world with the lock held.
pub struct Locked {
    _guard: Guard,
}

/// Takes the lock. The library must be ready.
pub fn lock() -> Locked {
    Locked { _guard: lock::lock() }
}

impl Locked {
    /// Says that this is a forked child's.
    pub fn after_fork(&self) {
        self._guard.after_fork();
    }
}

impl Deref for Locked {
    type Target = World;

    fn deref(&self) -> &World {
        // SAFETY: there is one lock, this holds it, and the library was made ready before.
        unsafe { (*CELL.world.get()).assume_init_ref() }
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut World {
        // SAFETY: there is one lock, this holds it, and the library was made ready before.
        unsafe { (*CELL.world.get()).assume_init_mut() }
    }
}

/// Where the pools are. The library must be ready.
pub fn extents() -> &'static [Extent; 3] {
    // SAFETY: not written any more once the library is ready.
    unsafe { &*CELL.extents.get() }
}

/// Some pool has to do with this range of addresses.
pub fn meets_pool(start: usize, length: usize) -> bool {
    let end = start.saturating_add(length);
    extents().iter().any(|extent| extent.meets(start, end))
}
