//! Counters, and what a process says of its pools: in a line when it ends, if that was asked for, and where others find it while it runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use memomania_layout::page::BASE;
use memomania_layout::report::{Pool, Process, EVENTS};
use memomania_layout::request::flag;
use memomania_layout::status;

use crate::sys::{self, Line};
use crate::world::{self, World};

pub use memomania_layout::report::Event;

static COUNTERS: [AtomicUsize; EVENTS] = [const { AtomicUsize::new(0) }; EVENTS];

/// Counts one.
pub fn count(event: Event) {
    COUNTERS[event.index()].fetch_add(1, Ordering::Relaxed);
}

/// There was one only.
pub fn first(event: Event) -> bool {
    COUNTERS[event.index()].load(Ordering::Relaxed) == 1
}

/// Has `mega show` find what this process would report ([`status`]). The world does not move any more.
pub fn publish(world: &'static World) {
    let pools = world.pools.each_ref();
    let pools = pools.map(|pool| pool.as_ref().map(|pool| (pool.map.len() * BASE, pool.map.usage())));
    let words = status::encode(&pools, COUNTERS.as_ptr() as usize);
    let bytes = size_of_val(&words);
    // Nobody but who looks from outside misses it: a kernel or a filter that refuses is no error.
    let Ok(fd) = sys::memory_file(status::NAME) else { return };
    let protection = flag::PROT_READ | flag::PROT_WRITE;
    let mapped = sys::truncate(fd, BASE).and_then(|_| sys::mmap(0, BASE, protection, flag::MAP_PRIVATE, fd, 0));
    sys::close(fd);
    if let Ok(address) = mapped {
        sys::copy(words.as_ptr() as usize, address, bytes);
        let _ = sys::mprotect(address, BASE, flag::PROT_READ);
    }
}

/// Appends this process's line to the report, if there is to be one.
pub fn write() {
    if !world::ready() {
        return;
    }
    let world = world::lock();
    let path = world.settings.report;
    if path.is_empty() {
        return;
    }
    let mut line = Line::new();
    let _ = describe(&world, &mut line);
    drop(world);
    if path == "-" {
        let _ = sys::write(2, line.bytes());
        return;
    }
    let mut name = [0; 4096];
    if path.len() < name.len() {
        name[..path.len()].copy_from_slice(path.as_bytes());
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
        if let Ok(fd) = sys::open(&name[..=path.len()], flags) {
            let _ = sys::write(fd, line.bytes());
            sys::close(fd);
        }
    }
}

fn describe(world: &World, line: &mut Line) -> std::fmt::Result {
    let mut name = [0; 16];
    let mut length = 0;
    if let Ok(fd) = sys::open(b"/proc/self/comm\0", libc::O_RDONLY) {
        length = sys::read(fd, &mut name).unwrap_or(0);
        sys::close(fd);
    }
    let pools = world.pools.each_ref();
    let process = Process {
        pid: sys::process(),
        name: &name[..length],
        pools: pools.map(|pool| {
            pool.as_ref().map(|pool| Pool {
                reserved_bytes: pool.map.len() * BASE,
                usage: *pool.map.usage(),
            })
        }),
        counts: std::array::from_fn(|event| COUNTERS[event].load(Ordering::Relaxed)),
    };
    std::fmt::Write::write_fmt(line, format_args!("{process}\n"))
}
