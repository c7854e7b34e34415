//! Settings and pools, made at the first call of any of our functions: that may come from the loader, long before constructors run.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use memomania_layout::environ::Finder;
use memomania_layout::layout::pool_bytes;
use memomania_layout::page::{Kind, GIGANTIC};
use memomania_layout::settings::{Fallback, PoolSettings, Settings};
use memomania_layout::wire::{self, VARIABLE};

use crate::lock::{self, Guard};
use crate::pool::{Extent, Pool};
use crate::{fork, heap, report, sys};

/// The pools, as [`memomania_layout::report::POOLS`] has them.
pub const HEAP: usize = 0;
/// The program break's: the heap's layout again.
pub const BRK: usize = 1;
/// Of anonymous private mappings.
pub const ANON: usize = 2;

/// What is there once the library is ready.
pub struct World {
    pub settings: Settings<'static>,
    pub pools: [Option<Pool>; 3],
}

struct Cell {
    world: UnsafeCell<MaybeUninit<World>>,
    /// Outside of the lock: does not change.
    extents: UnsafeCell<[Extent; 3]>,
    value: UnsafeCell<[u8; wire::LONGEST]>,
}

// SAFETY: written by the one thread that starts the library, before READY; after that the world is only reached with the lock held, and
// the extents are only read.
unsafe impl Sync for Cell {}

const NOWHERE: Extent = Extent { start: 0, end: 0 };

static CELL: Cell = Cell {
    world: UnsafeCell::new(MaybeUninit::uninit()),
    extents: UnsafeCell::new([NOWHERE; 3]),
    value: UnsafeCell::new([0; wire::LONGEST]),
};

const NEW: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NEW);
static STARTER: AtomicU32 = AtomicU32::new(0);

/// The status of a process whose settings make no sense, as `mega` itself has it.
const FAILED: i32 = 125;

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
        start();
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

fn start() {
    // SAFETY: only the starting thread comes here, once, and nobody reads before it is READY.
    let (world, extents, value) = unsafe { (&mut *CELL.world.get(), &mut *CELL.extents.get(), &mut *CELL.value.get()) };
    let settings = read_settings(value);
    let pool = |pool: &PoolSettings, commits| {
        let wanted = match pool.bytes {
            0 => sys::memory().saturating_mul(2),
            bytes => bytes,
        };
        // Under a limit of the address space a pool may take an eighth of it.
        let most = sys::address_space_limit() / 8;
        let bytes = pool_bytes(&pool.layout, wanted).min(most - most % GIGANTIC);
        (bytes > 0)
            .then(|| Pool::reserve(bytes, pool.layout, settings.fallback, commits).ok())
            .flatten()
    };
    let pools = [
        pool(&settings.heap, true),
        pool(&settings.heap, false),
        pool(&settings.anon, false),
    ];
    for (extent, pool) in extents.iter_mut().zip(&pools) {
        *extent = pool.as_ref().map_or(NOWHERE, Pool::extent);
    }
    let has_hugetlb = Kind::ALL
        .into_iter()
        .any(|kind| kind.is_hugetlb() && settings.heap.layout.has(kind));
    let is_strict = settings.fallback == Fallback::Fail;
    let heap_extent = extents[HEAP];
    report::publish(world.write(World { settings, pools }));
    // The allocator asks for pages by our own mprotect, which has to find the pools there.
    STATE.store(READY, Ordering::Release);
    heap::start(
        heap_extent.start,
        heap_extent.end - heap_extent.start,
        has_hugetlb,
        is_strict,
    );
    // As early as can be: what is registered before us would find the lock held in its own handlers.
    fork::register();
}

fn read_settings(value: &'static mut [u8; wire::LONGEST]) -> Settings<'static> {
    let mut finder = Finder::new(VARIABLE);
    let Ok(fd) = sys::open(b"/proc/self/environ\0", libc::O_RDONLY) else {
        refuse(format_args!(
            "/proc/self/environ cannot be read, and with it the settings"
        ));
    };
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = sys::read(fd, &mut piece) {
        if finder.feed(&piece[..length], value).is_err() {
            refuse(format_args!("{VARIABLE} is too long"));
        }
        if finder.is_done() {
            break;
        }
    }
    sys::close(fd);
    let Some(length) = finder.finish() else {
        // Preloaded by hand: base pages everywhere.
        return Settings::default();
    };
    let Ok(text) = std::str::from_utf8(&value[..length]) else {
        refuse(format_args!("{VARIABLE} is not text"));
    };
    wire::decode(text).unwrap_or_else(|error| refuse(format_args!("{error}")))
}

/// A program is not run half configured.
fn refuse(why: std::fmt::Arguments<'_>) -> ! {
    sys::tell(why);
    sys::exit(FAILED)
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
