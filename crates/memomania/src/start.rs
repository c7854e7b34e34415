//! Makes the library ready: reads the settings, reserves the pools, gives the allocator its memory.

use std::cell::UnsafeCell;

use memomania_layout::environ::Finder;
use memomania_layout::layout::pool_bytes;
use memomania_layout::page::{Kind, GIGANTIC};
use memomania_layout::settings::{Fallback, PoolSettings, Settings};
use memomania_layout::wire::{self, VARIABLE};

use crate::pool::Pool;
use crate::world::{self, World, HEAP};
use crate::{fork, heap, report, sys};

/// The text of the settings, which refer to it for ever.
struct Value(UnsafeCell<[u8; wire::LONGEST]>);

// SAFETY: written by the one thread that starts the library, and only read after that.
unsafe impl Sync for Value {}

static VALUE: Value = Value(UnsafeCell::new([0; wire::LONGEST]));

/// The status of a process whose settings make no sense, as `mega` itself has it.
const FAILED: i32 = 125;

/// Called once, by the first thread that asks for the library to be ready.
pub fn start() {
    // SAFETY: only the starting thread comes here, once.
    let value = unsafe { &mut *VALUE.0.get() };
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
            .then(|| Pool::reserve(bytes, pool.layout, &settings, commits).ok())
            .flatten()
    };
    let pools = [
        pool(&settings.heap, true),
        pool(&settings.heap, false),
        pool(&settings.anon, false),
    ];
    let has_hugetlb = Kind::ALL
        .into_iter()
        .any(|kind| kind.is_hugetlb() && settings.heap.layout.has(kind));
    let is_strict = settings.fallback == Fallback::Fail;
    report::publish(world::set(World { settings, pools }));
    let heap_extent = world::extents()[HEAP];
    // The allocator asks for pages by our own mprotect, which has to find the pools there.
    world::open();
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
