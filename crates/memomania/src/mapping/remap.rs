//! mremap(2): what grows, shrinks or moves, within a pool, between pool and kernel.

use memomania_layout::map::{Page, FOREIGN, PROTECTION, USED};
use memomania_layout::page::{Kind, BASE};
use memomania_layout::request::{flag, Reason, Request};

use super::{is_range, mmap_over, parts, place_foreign, Part};
use crate::pool::{pages, Pool};
use crate::report::{self, Event};
use crate::sys::{self, Result, EFAULT, EINVAL, ENOMEM};
use crate::world::{self, World, ANON};

const KNOWN: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;

/// mremap(2)
pub fn mremap(old: usize, old_length: usize, new_length: usize, flags: i32, new: usize) -> Result<usize> {
    let kernel = || sys::mremap(old, old_length, new_length, flags, new);
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let meets = |address: usize, length: usize| world::meets_pool(address, length.max(1));
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
    let mut world = world::lock();
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
        // A mapping that may not move is the kernel's to refuse; one that stays leaves no hole.
        let put = || match keeps || !may_move {
            true => kernel(),
            false => move_out(old, old_bytes.min(new_bytes), new_bytes, is_fixed.then_some(new)).or_else(|_| kernel()),
        };
        return move_foreign(
            &mut world,
            old,
            old_bytes,
            &put,
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
    if !world.settings.demote && has_hugetlb(&world, old, old_bytes) {
        // It would be copied.
        report::count(Event::DemotionFailed);
        return Err(ENOMEM);
    }
    let target = target(
        &mut world,
        (old, old_bytes),
        new_bytes,
        is_fixed.then_some(new),
        protection,
    )?;
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
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let is_valid = (1..=isize::MAX as usize).contains(&new_length)
        && (!is_fixed || flags & libc::MREMAP_MAYMOVE != 0 && is_range(new, new_length));
    if !is_valid {
        return Err(EINVAL);
    }
    let mut world = world::lock();
    let pool = world
        .pools
        .iter()
        .flatten()
        .find(|pool| pool.extent().meets(old, old + 1));
    // Of the kernel's memory it is the kernel's to say.
    let known = pool.map_or(USED | FOREIGN, |pool| pool.map.page(pool.range(old, old + BASE).0));
    if known & USED == 0 {
        return Err(EFAULT);
    }
    if known & FOREIGN == 0 {
        return Err(EINVAL);
    }
    if !is_fixed || !world::meets_pool(new, new_length) {
        return kernel();
    }
    let protection = flag::PROT_READ | flag::PROT_WRITE;
    place_foreign(&mut world, new, new + pages(new_length) * BASE, protection, kernel)
}

/// Moves what is at `old`, a part of a pool, to where it is to be or to a place of our choice; answers that place. What is left at `old` is of no
/// more use.
fn target(
    world: &mut World,
    (old, old_bytes): (usize, usize),
    bytes: usize,
    fixed: Option<usize>,
    protection: Page,
) -> Result<usize> {
    let flags = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS;
    let place = match fixed {
        // In one pool it is the pool's, with any protection.
        Some(new) if put_in_pool(world, new, bytes, protection)? => Some(new),
        Some(new) if world::meets_pool(new, bytes) => {
            let flags = flags | flag::MAP_FIXED;
            let request = Request {
                address: new,
                length: bytes,
                protection: i32::from(protection),
                flags,
                offset: 0,
            };
            let kernel = |flags| sys::mmap(new, bytes, request.protection, flags, -1, 0);
            Some(mmap_over(world, &request, &kernel)?)
        }
        Some(_) => None,
        None => room(world, bytes, protection)?,
    };
    let place = match place {
        Some(place) => place,
        None => {
            report::count(Event::Fall(Reason::NoRoom));
            let is_ordinary = |kind: Option<Kind>| kind.is_none_or(|kind| !kind.is_hugetlb());
            let mut at = old;
            while at < old + old_bytes {
                let (kind, left) = stretch(world, at, old + old_bytes - at);
                if !is_ordinary(kind) {
                    break;
                }
                at += left;
            }
            if at >= old + old_bytes {
                if let Ok(place) = move_out(old, old_bytes.min(bytes), bytes, fixed) {
                    return Ok(place);
                }
            }
            // Protected all at once in the end, or the kernel might see several mappings.
            let writable = flag::PROT_READ | flag::PROT_WRITE;
            let flags = flags | fixed.map_or(0, |_| flag::MAP_FIXED);
            let place = sys::mmap(fixed.unwrap_or(0), bytes, writable, flags, -1, 0)?;
            transfer(world, old, place, old_bytes.min(bytes), protection)?;
            sys::mprotect(place, bytes, i32::from(protection))?;
            return Ok(place);
        }
    };
    transfer(world, old, place, old_bytes.min(bytes), protection)?;
    Ok(place)
}

/// New memory in the place of what is there now, if all of that is in one pool.
fn put_in_pool(world: &mut World, new: usize, bytes: usize, protection: Page) -> Result<bool> {
    let mut all = parts(new, new + bytes);
    let (Some(Part { pool: Some(pool), .. }), None) = (all.next(), all.next()) else {
        return Ok(false);
    };
    let Some(pool) = world.pools[pool].as_mut() else {
        return Ok(false);
    };
    let (start, end) = pool.range(new, new + bytes);
    pool.unmap(start, end)?;
    if !pool.map.range_suits(start, end, protection) {
        pool.make_ordinary(start, end)?;
    }
    pool.map(start, end, protection, 0)?;
    Ok(true)
}

/// New memory of the anonymous pool for what is moved, if it has room.
fn room(world: &mut World, bytes: usize, protection: Page) -> Result<Option<usize>> {
    let count = bytes / BASE;
    let Some(pool) = world.pools[ANON].as_mut().filter(|_| protection != 0) else {
        return Ok(None);
    };
    let Some(start) = pool.map.find(count, protection) else {
        return Ok(None);
    };
    pool.map(start, start + count, protection, 0)?;
    Ok(Some(pool.address(start)))
}

/// Moves a part of a pool that is one mapping of the kernel's to memory of the kernel's, where it is one again: a program may have it grow there,
/// and that is refused for several; so it is here. At no moment is there a hole in the pool, which the kernel could give to others. Nothing has changed on failure.
fn move_out(old: usize, old_bytes: usize, new_bytes: usize, fixed: Option<usize>) -> Result<usize> {
    let flags = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS | flag::MAP_NORESERVE;
    let between = sys::mmap(0, old_bytes, 0, flags, -1, 0)?;
    if let Err(error) = sys::mremap(old, old_bytes, old_bytes, KNOWN, between) {
        let _ = sys::munmap(between, old_bytes);
        return Err(error);
    }
    let put_back = |between, bytes| {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let _ = sys::mremap(between, old_bytes, old_bytes, flags, old);
        let _ = sys::munmap(between + old_bytes, bytes - old_bytes);
    };
    // Since Linux 6.17 several mappings move at once, but only one grows.
    let more = old_bytes + BASE;
    let grown = sys::mremap(between, old_bytes, more, libc::MREMAP_MAYMOVE, 0);
    let between = grown.inspect_err(|_| put_back(between, old_bytes))?;
    let flags = libc::MREMAP_MAYMOVE | fixed.map_or(0, |_| libc::MREMAP_FIXED);
    let moved = sys::mremap(between, more, new_bytes, flags, fixed.unwrap_or(0));
    moved.inspect_err(|_| put_back(between, more))
}

/// Moves the content of a part of a pool to new memory with the same protection. Page tables where both are a pool's, on ordinary pages; else
/// bytes.
fn transfer(world: &mut World, from: usize, to: usize, bytes: usize, protection: Page) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let left = bytes - done;
        let (from_kind, from_left) = stretch(world, from + done, left);
        let (to_kind, to_left) = stretch(world, to + done, left);
        let step = from_left.min(to_left);
        let (source, target) = (from + done, to + done);
        let is_ordinary = |kind: Option<Kind>| kind.is_none_or(|kind| !kind.is_hugetlb());
        let moved = to_kind.filter(|_| is_ordinary(from_kind) && is_ordinary(to_kind));
        match moved.filter(|_| sys::mremap(source, step, step, KNOWN, target).is_ok()) {
            Some(kind) => Pool::advise_kind(target, step, kind),
            None => {
                let whole = whole(world, source, step);
                copy(source, target, step, whole, protection, to_kind.is_some())?;
            }
        }
        done += step;
    }
    Ok(())
}

/// Both have this protection; or the target can be written, if it is not `protected`. The protection of the source can be changed from `start` on.
fn copy(
    from: usize,
    to: usize,
    bytes: usize,
    (start, length): (usize, usize),
    protection: Page,
    protected: bool,
) -> Result<()> {
    let protection = i32::from(protection);
    let is_readable = protection & flag::PROT_READ != 0;
    let is_writable = protection & flag::PROT_WRITE != 0 || !protected;
    if !is_readable {
        sys::mprotect(start, length, flag::PROT_READ)?;
    }
    if !is_writable {
        sys::mprotect(to, bytes, flag::PROT_READ | flag::PROT_WRITE)?;
    }
    for page in (0..bytes).step_by(BASE) {
        // What was never written is not to take memory now.
        if !sys::is_zero(from + page, BASE) {
            sys::copy(from + page, to + page, BASE);
        }
    }
    if !is_writable {
        sys::mprotect(to, bytes, protection)?;
    }
    if !is_readable {
        sys::mprotect(start, length, protection)?;
    }
    Ok(())
}

/// The address and bytes of the hugetlb pages that a range touches, whose protection can only be changed as a whole; of anything else the range.
fn whole(world: &World, address: usize, bytes: usize) -> (usize, usize) {
    let mut pools = world.pools.iter().flatten();
    let Some(pool) = pools.find(|pool| pool.extent().meets(address, address + 1)) else {
        return (address, bytes);
    };
    let (first, last) = pool.range(address, address + bytes);
    if !pool.map.kind(first).is_hugetlb() {
        return (address, bytes);
    }
    let (start, end) = (pool.map.granule(first).0, pool.map.granule(last - 1).1);
    (pool.address(start), (end - start) * BASE)
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

/// Something of a range is on hugetlb pages.
fn has_hugetlb(world: &World, address: usize, bytes: usize) -> bool {
    let mut done = 0;
    while done < bytes {
        let (kind, step) = stretch(world, address + done, bytes - done);
        if kind.is_some_and(Kind::is_hugetlb) {
            return true;
        }
        done += step;
    }
    false
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
        Some((start, end)) if world::meets_pool(start, end - start) => {
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
        match pool.seal(start, end) {
            true => pool.unmap(start, end)?,
            // Another thread's mapping has got there first: it is left alone for ever.
            false => pool.take_foreign(start, end, 0),
        }
    }
    Ok(placed)
}
