//! The mmap family over pools and kernel. What has nothing to do with a pool goes to the kernel as it came.

use memomania_layout::map::Page;
use memomania_layout::page::BASE;
use memomania_layout::request::{flag, Reason, Request};

use crate::pool::{pages, Extent, Pool};
use crate::report::{self, Event};
use crate::sys::{self, Result, EEXIST, EINVAL, ENOMEM};
use crate::world::{self, World, ANON};

mod remap;

pub use remap::mremap;

/// A part of a range of addresses.
struct Part {
    start: usize,
    end: usize,
    pool: Option<usize>,
}

/// Cuts a range at the bounds of pools.
fn parts(start: usize, end: usize) -> impl Iterator<Item = Part> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let extents = world::extents();
        let inside = |extent: &Extent| (extent.start..extent.end).contains(&at);
        let pool = extents.iter().position(inside);
        let cut = match pool {
            Some(pool) => extents[pool].end,
            None => extents
                .iter()
                .map(|e| e.start)
                .filter(|s| *s > at)
                .min()
                .unwrap_or(usize::MAX),
        };
        let part = Part {
            start: at,
            end: cut.min(end),
            pool,
        };
        at = part.end;
        Some(part)
    })
}

/// Past this there is no memory of a program, on any of the kernel's layouts with 47 or 48 bits.
const HIGHEST: usize = 1 << 48;

/// A range that the kernel would look at: aligned, not empty, not past the end of addresses.
fn is_range(start: usize, length: usize) -> bool {
    let end = start.checked_add(length);
    start % BASE == 0 && length != 0 && end.is_some_and(|end| end <= HIGHEST)
}

impl World {
    /// Does something to each part of a range in turn: in a pool, or with the kernel.
    fn each(
        &mut self,
        start: usize,
        length: usize,
        in_pool: impl Fn(&mut Pool, usize, usize) -> Result<()>,
        in_kernel: impl Fn(usize, usize) -> Result<usize>,
    ) -> Result<()> {
        let mut hole = Ok(());
        for part in parts(start, start + pages(length) * BASE) {
            let done = match part.pool.and_then(|pool| self.pools[pool].as_mut()) {
                Some(pool) => {
                    let (first, last) = pool.range(part.start, part.end);
                    in_pool(pool, first, last)
                }
                None => in_kernel(part.start, part.end - part.start).map(|_| ()),
            };
            hole = hole.and(done);
        }
        hole
    }
}

/// munmap(2)
pub fn munmap(address: usize, length: usize) -> Result<usize> {
    if !is_range(address, length) || !world::meets_pool(address, length) {
        return sys::munmap(address, length);
    }
    world::lock()
        .each(address, length, Pool::unmap, sys::munmap)
        .map(|()| 0)
}

/// mprotect(2)
pub fn mprotect(address: usize, length: usize, protection: i32) -> Result<usize> {
    if !is_range(address, length) || !world::meets_pool(address, length) {
        return sys::mprotect(address, length, protection);
    }
    if protection & !(flag::PROT_ALL | 8) != 0 {
        return Err(EINVAL);
    }
    let in_pool = |pool: &mut Pool, start, end| pool.protect(start, end, protection);
    let in_kernel = |start, length| sys::mprotect(start, length, protection);
    world::lock().each(address, length, in_pool, in_kernel).map(|()| 0)
}

/// madvise(2)
pub fn madvise(address: usize, length: usize, advice: i32) -> Result<usize> {
    if !is_range(address, length) || !world::meets_pool(address, length) {
        return sys::madvise(address, length, advice);
    }
    let in_pool = |pool: &mut Pool, start, end| pool.advise(start, end, advice);
    let in_kernel = |start, length| sys::madvise(start, length, advice);
    world::lock().each(address, length, in_pool, in_kernel).map(|()| 0)
}

/// mmap(2)
pub fn mmap(request: &Request, fd: i32) -> Result<usize> {
    let kernel = |flags| {
        sys::mmap(
            request.address,
            request.length,
            request.protection,
            flags,
            fd,
            request.offset,
        )
    };
    if request.is_fixed() {
        let aligned = request.address % BASE == 0 && request.is_valid();
        if !aligned || !world::meets_pool(request.address, request.length) {
            report::count(Event::Fall(Reason::Address));
            return kernel(request.flags);
        }
        return mmap_over(&mut world::lock(), request, &kernel);
    }
    let mut request = *request;
    let hint = request.address - request.address % BASE;
    if request.address != 0 && request.is_valid() && world::meets_pool(hint, 1) {
        // The program may ask for what it had before.
        const ELSEWHERE: i32 = flag::MAP_HUGETLB | flag::MAP_32BIT;
        let mut world = world::lock();
        if request.flags & ELSEWHERE == 0 && is_free(&world, hint, hint.saturating_add(request.length)) {
            let here = Request {
                address: hint,
                flags: request.flags | flag::MAP_FIXED,
                ..request
            };
            return mmap_over(&mut world, &here, &|flags| {
                sys::mmap(hint, here.length, here.protection, flags, fd, here.offset)
            });
        }
        // Else an address in a pool is as good as none.
        request.address = 0;
    }
    if let Err(reason) = request.is_served() {
        report::count(Event::Fall(reason));
        return kernel(request.flags);
    }
    let protection = request.protection as Page;
    let count = pages(request.length);
    let mut world = world::lock();
    let Some(pool) = world.pools[ANON].as_mut() else {
        report::count(Event::Fall(Reason::NoPool));
        return kernel(request.flags);
    };
    let Some(start) = pool.map.find(count, protection) else {
        report::count(Event::Fall(Reason::NoRoom));
        return kernel(request.flags);
    };
    pool.map(start, start + count, protection, request.flags)?;
    report::count(Event::Served);
    Ok(pool.address(start))
}

/// A range is all in the anonymous pool, and nothing of it is in use. What is free of the others is the allocator's and the break's.
fn is_free(world: &World, start: usize, end: usize) -> bool {
    let Some(pool) = world.pools[ANON].as_ref() else {
        return false;
    };
    let extent = pool.extent();
    if start < extent.start || end > extent.end {
        return false;
    }
    let (first, last) = pool.range(start, end);
    pool.map.is_free(first, last)
}

/// MAP_FIXED and MAP_FIXED_NOREPLACE where a pool is.
fn mmap_over(world: &mut World, request: &Request, kernel: &dyn Fn(i32) -> Result<usize>) -> Result<usize> {
    let (start, end) = (request.address, request.address + pages(request.length) * BASE);
    let replaces = request.flags & flag::MAP_FIXED_NOREPLACE == 0;
    let mut all = parts(start, end);
    let whole = match (all.next(), all.next()) {
        (Some(part), None) => part.pool,
        _ => None,
    };
    if !replaces && !is_free(world, start, end) {
        return Err(EEXIST);
    }
    let fixed = Request {
        flags: request.flags & !flag::MAP_FIXED_NOREPLACE | flag::MAP_FIXED,
        ..*request
    };
    if let Some(pool) = whole.and_then(|pool| world.pools[pool].as_mut()) {
        if fixed.is_plain().is_ok() {
            let (first, last) = pool.range(start, end);
            let protection = request.protection as Page;
            pool.unmap(first, last)?;
            if !pool.map.range_suits(first, last, protection) {
                pool.make_ordinary(first, last)?;
            }
            pool.map(first, last, protection, request.flags)?;
            report::count(Event::Served);
            return Ok(start);
        }
    }
    report::count(Event::Fall(Reason::Address));
    // Of MAP_FIXED_NOREPLACE we have seen to it that nothing is there but our own reservation.
    place_foreign(world, start, end, request.protection, &|| kernel(fixed.flags))
}

/// Has the kernel put something where pools are, and takes note.
fn place_foreign(
    world: &mut World,
    start: usize,
    end: usize,
    protection: i32,
    put: &dyn Fn() -> Result<usize>,
) -> Result<usize> {
    let mut each = |work: &mut dyn FnMut(&mut Pool, usize, usize) -> Result<()>| -> Result<()> {
        for part in parts(start, end) {
            if let Some(pool) = part.pool.and_then(|pool| world.pools[pool].as_mut()) {
                let (first, last) = pool.range(part.start, part.end);
                work(pool, first, last)?;
            }
        }
        Ok(())
    };
    each(&mut |pool, first, last| pool.make_ordinary(first, last))?;
    let placed = put();
    match placed {
        Ok(_) => each(&mut |pool, first, last| {
            pool.map.free(first, last, false);
            pool.take_foreign(first, last, protection);
            Ok(())
        })?,
        Err(error) if error == ENOMEM => each(&mut |pool, first, last| {
            // Where nothing was unmapped all is as it was.
            let _ = pool.seal(first, last);
            Ok(())
        })?,
        Err(_) => {}
    }
    placed
}
