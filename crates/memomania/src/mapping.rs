//! The mmap family over pools and kernel. What has nothing to do with a pool goes to the kernel as it came.

use memomania_layout::map::{Page, FOREIGN, PROTECTION, USED};
use memomania_layout::page::{Kind, BASE};
use memomania_layout::request::{flag, Reason, Request};

use crate::pool::{pages, Extent, Pool};
use crate::report::{self, Event};
use crate::start::{self, World, ANON};
use crate::sys::{self, Result, EEXIST, EFAULT, EINVAL, ENOMEM};

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
        let extents = start::extents();
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
    if !is_range(address, length) || !start::meets_pool(address, length) {
        return sys::munmap(address, length);
    }
    start::lock()
        .each(address, length, Pool::unmap, sys::munmap)
        .map(|()| 0)
}

/// mprotect(2)
pub fn mprotect(address: usize, length: usize, protection: i32) -> Result<usize> {
    if !is_range(address, length) || !start::meets_pool(address, length) {
        return sys::mprotect(address, length, protection);
    }
    if protection & !(flag::PROT_ALL | 8) != 0 {
        return Err(EINVAL);
    }
    let in_pool = |pool: &mut Pool, start, end| pool.protect(start, end, protection);
    let in_kernel = |start, length| sys::mprotect(start, length, protection);
    start::lock().each(address, length, in_pool, in_kernel).map(|()| 0)
}

/// madvise(2)
pub fn madvise(address: usize, length: usize, advice: i32) -> Result<usize> {
    if !is_range(address, length) || !start::meets_pool(address, length) {
        return sys::madvise(address, length, advice);
    }
    let in_pool = |pool: &mut Pool, start, end| pool.advise(start, end, advice);
    let in_kernel = |start, length| sys::madvise(start, length, advice);
    start::lock().each(address, length, in_pool, in_kernel).map(|()| 0)
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
        if !aligned || !start::meets_pool(request.address, request.length) {
            report::count(Event::Fall(Reason::Address));
            return kernel(request.flags);
        }
        return mmap_over(&mut start::lock(), request, &kernel);
    }
    let mut request = *request;
    let hint = request.address - request.address % BASE;
    if request.address != 0 && request.is_valid() && start::meets_pool(hint, 1) {
        // The program may ask for what it had before.
        const ELSEWHERE: i32 = flag::MAP_HUGETLB | flag::MAP_32BIT;
        let mut world = start::lock();
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
    let mut world = start::lock();
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
            pool.seal(first, last);
            Ok(())
        })?,
        Err(_) => {}
    }
    placed
}

const KNOWN: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;

/// mremap(2)
pub fn mremap(old: usize, old_length: usize, new_length: usize, flags: i32, new: usize) -> Result<usize> {
    let kernel = || sys::mremap(old, old_length, new_length, flags, new);
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let meets = |address: usize, length: usize| start::meets_pool(address, length.max(1));
    let is_ours = meets(old, old_length) || is_fixed && meets(new, new_length);
    if !is_ours {
        return kernel();
    }
    if old_length == 0 && old % BASE == 0 && flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) == 0 {
        return duplicate(old, new_length, flags, new, &kernel);
    }
    let keeps = flags & libc::MREMAP_DONTUNMAP != 0;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let (old_bytes, new_bytes) = (pages(old_length) * BASE, pages(new_length) * BASE);
    let is_valid = flags & !KNOWN == 0
        && old % BASE == 0
        && is_range(old, old_length)
        && new_length != 0
        && new_length <= isize::MAX as usize
        && (may_move || !(is_fixed || keeps))
        && (!keeps || old_bytes == new_bytes)
        && (!is_fixed || is_range(new, new_length) && (new + new_bytes <= old || old + old_bytes <= new));
    if !is_valid {
        return Err(EINVAL);
    }
    let mut world = start::lock();
    let mut all = parts(old, old + old_bytes);
    let pool = match (all.next(), all.next()) {
        (Some(Part { pool: Some(pool), .. }), None) => pool,
        // From the kernel's memory into a pool.
        (Some(Part { pool: None, .. }), None) => {
            let protection = flag::PROT_READ | flag::PROT_WRITE;
            return place_foreign(&mut world, new, new + new_bytes, protection, &kernel);
        }
        _ => return Err(EFAULT),
    };
    let Some(pool) = world.pools[pool].as_mut() else {
        return Err(EFAULT);
    };
    let (start, end) = pool.range(old, old + old_bytes);
    let known = pool.map.page(start);
    if known & USED == 0 {
        return Err(EFAULT);
    }
    if !is_fixed && !keeps && new_bytes <= old_bytes {
        pool.unmap(start + new_bytes / BASE, end)?;
        return Ok(old);
    }
    let cut = start + new_bytes.min(old_bytes) / BASE;
    if pool.map.run(start, cut) != cut {
        return Err(EFAULT);
    }
    if known & FOREIGN != 0 {
        return move_foreign(
            &mut world,
            old,
            old_bytes,
            &kernel,
            is_fixed.then_some((new, new + new_bytes)),
            keeps,
        );
    }
    let protection = known & PROTECTION;
    if !is_fixed && !keeps {
        let last = start + new_bytes / BASE;
        let fits = last <= pool.map.len()
            && pool.map.is_free(end, last)
            && pool.map.range_suits(end, last, protection)
            && protection != 0;
        if fits {
            return pool.map(end, last, protection, 0).map(|()| old);
        }
        if !may_move {
            return Err(ENOMEM);
        }
    }
    let target = match is_fixed {
        true => {
            let request = Request {
                address: new,
                length: new_bytes,
                protection: i32::from(protection),
                flags: flag::MAP_PRIVATE | flag::MAP_ANONYMOUS | flag::MAP_FIXED,
                offset: 0,
            };
            let kernel = |flags| sys::mmap(new, new_bytes, request.protection, flags, -1, 0);
            match start::meets_pool(new, new_bytes) {
                true => mmap_over(&mut world, &request, &kernel)?,
                false => kernel(request.flags)?,
            }
        }
        false => room(&mut world, new_bytes, protection)?,
    };
    transfer(&mut world, old, target, old_bytes.min(new_bytes), protection)?;
    let Some(pool) = world
        .pools
        .iter_mut()
        .flatten()
        .find(|pool| pool.extent().meets(old, old + 1))
    else {
        return Err(EFAULT);
    };
    pool.unmap(start, end)?;
    if keeps {
        // It is there still, and reads as zeros.
        if !pool.map.range_suits(start, end, protection) {
            pool.make_ordinary(start, end)?;
        }
        pool.map(start, end, protection, 0)?;
    }
    Ok(target)
}

/// mremap(2) of nothing to something: another mapping of what is shared, which is what the program has put there; a mistake for all else.
fn duplicate(
    old: usize,
    new_length: usize,
    flags: i32,
    new: usize,
    kernel: &dyn Fn() -> Result<usize>,
) -> Result<usize> {
    let mut world = start::lock();
    let is_foreign = |world: &World| {
        let pool = world
            .pools
            .iter()
            .flatten()
            .find(|pool| pool.extent().meets(old, old + 1));
        // Of the kernel's memory it is the kernel's to say.
        pool.is_none_or(|pool| pool.map.page(pool.range(old, old + BASE).0) & FOREIGN != 0)
    };
    if !is_foreign(&world) {
        return Err(EINVAL);
    }
    let is_in_pool = flags & libc::MREMAP_FIXED != 0 && start::meets_pool(new, new_length.max(1));
    if !is_in_pool {
        return kernel();
    }
    if !is_range(new, new_length) {
        return Err(EINVAL);
    }
    let protection = flag::PROT_READ | flag::PROT_WRITE;
    place_foreign(&mut world, new, new + pages(new_length) * BASE, protection, kernel)
}

/// New memory for what is moved: of the anonymous pool, or the kernel's.
fn room(world: &mut World, bytes: usize, protection: Page) -> Result<usize> {
    let count = bytes / BASE;
    if let Some(pool) = world.pools[ANON].as_mut().filter(|_| protection != 0) {
        if let Some(start) = pool.map.find(count, protection) {
            pool.map(start, start + count, protection, 0)?;
            return Ok(pool.address(start));
        }
    }
    report::count(Event::Fall(Reason::NoRoom));
    let flags = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS;
    sys::mmap(0, bytes, i32::from(protection), flags, -1, 0)
}

/// Moves the content of a part of a pool to new memory with the same protection. Page tables where both are on ordinary pages, else bytes.
fn transfer(world: &mut World, from: usize, to: usize, bytes: usize, protection: Page) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let left = bytes - done;
        let (from_kind, from_left) = stretch(world, from + done, left);
        let (to_kind, to_left) = stretch(world, to + done, left);
        let step = from_left.min(to_left);
        let (source, target) = (from + done, to + done);
        let is_ordinary = |kind: Option<Kind>| kind.is_none_or(|kind| !kind.is_hugetlb());
        let moved =
            is_ordinary(from_kind) && is_ordinary(to_kind) && sys::mremap(source, step, step, KNOWN, target).is_ok();
        if moved {
            if let Some(kind) = to_kind {
                Pool::advise_kind(target, step, kind);
            }
        } else {
            copy(source, target, step, i32::from(protection))?;
        }
        done += step;
    }
    Ok(())
}

fn copy(from: usize, to: usize, bytes: usize, protection: i32) -> Result<()> {
    let is_readable = protection & flag::PROT_READ != 0;
    let is_writable = protection & flag::PROT_WRITE != 0;
    if !is_readable {
        sys::mprotect(from, bytes, flag::PROT_READ)?;
    }
    if !is_writable {
        sys::mprotect(to, bytes, flag::PROT_READ | flag::PROT_WRITE)?;
    }
    sys::copy(from, to, bytes);
    if !is_writable {
        sys::mprotect(to, bytes, protection)?;
    }
    if !is_readable {
        sys::mprotect(from, bytes, protection)?;
    }
    Ok(())
}

/// What backs an address (nothing of ours: `None`), and for how many bytes that is so.
fn stretch(world: &World, address: usize, most: usize) -> (Option<Kind>, usize) {
    let pool = world
        .pools
        .iter()
        .flatten()
        .find(|pool| pool.extent().meets(address, address + 1));
    match pool {
        Some(pool) => {
            let (start, _) = pool.range(address, address + BASE);
            let piece = pool.map.piece(start, (start + most / BASE).min(pool.map.len()));
            (Some(piece.kind), (piece.end - piece.start) * BASE)
        }
        None => (None, most),
    }
}

/// Moves what the program had put into a pool itself: the kernel does it, and the place is the pool's again.
fn move_foreign(
    world: &mut World,
    old: usize,
    old_bytes: usize,
    kernel: &dyn Fn() -> Result<usize>,
    target: Option<(usize, usize)>,
    keeps: bool,
) -> Result<usize> {
    let protection = flag::PROT_READ | flag::PROT_WRITE;
    let placed = match target {
        Some((start, end)) if start::meets_pool(start, end - start) => {
            place_foreign(world, start, end, protection, kernel)?
        }
        _ => kernel()?,
    };
    if placed == old || keeps {
        return Ok(placed);
    }
    if let Some(pool) = world
        .pools
        .iter_mut()
        .flatten()
        .find(|pool| pool.extent().meets(old, old + 1))
    {
        let (start, end) = pool.range(old, old + old_bytes);
        pool.seal(start, end);
        pool.unmap(start, end)?;
    }
    Ok(placed)
}
