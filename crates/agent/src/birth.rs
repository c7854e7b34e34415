//! `mmap` of a program whose memory is known to be filled densely: advised before its first touch.
//!
//! The helper says what may be; the program's own call advises. So nobody has to look in time, and memory of which
//! nobody knows yet can be advised as a whole.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use mega_range::birth::{Birth, Births};
use mega_range::page::Field;
use mega_range::span::REGION;

use crate::sys::{self, advice};
use crate::{libc, next, remap, status};

const FAILED: usize = usize::MAX;
const READ_WRITE: i32 = 3;
const PRIVATE_ANONYMOUS: i32 = 0x22;
/// Shared; growing downwards; locked; a stack; huge pages of hugetlbfs.
const OTHERS: i32 = 0x01 | 0x100 | 0x2000 | 0x2_0000 | 0x4_0000;
/// What the helper says holds for so long, should it not get to say anything else.
const VALID_NS: u64 = 10_000_000_000;
/// Births that the helper can hear of at a time.
const NEWS: usize = 64;
const IS_PROBE: u64 = 1;

/// [`Births::resident_bytes`], and until when.
static RESIDENT: AtomicU64 = AtomicU64::new(0);
static UNTIL_NS: AtomicU64 = AtomicU64::new(0);
/// A filter of the program refuses advice.
static IS_REFUSED: AtomicU32 = AtomicU32::new(0);
/// Mappings that might have been advised.
static CANDIDATES: AtomicU32 = AtomicU32::new(0);
/// Bytes advised since the last probe, and whether there was one since the helper last spoke: more is advised once it has
/// spoken again.
static UNPROBED: AtomicU64 = AtomicU64::new(0);
static IS_PROBED: AtomicU32 = AtomicU32::new(0);
/// Where the last ones are, probes by odd numbers, and whether the helper is still to hear of some.
static BORN: [AtomicU64; NEWS] = [const { AtomicU64::new(0) }; NEWS];
static IS_NEWS: AtomicU32 = AtomicU32::new(0);
/// The C library's `mmap`, or that of another library that the program has preloaded.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Looks up whose `mmap` the program would have called.
pub fn begin() {
    NEXT.store(next::function(c"mmap").unwrap_or(0), Ordering::Relaxed);
}

/// After a fork: what was said holds for the parent.
pub fn forget() {
    allow(Births::default(), 0);
}

/// Says what may be advised from now on.
pub fn allow(births: Births, now_ns: u64) {
    let is_refused = IS_REFUSED.load(Ordering::Relaxed) != 0;
    if births.is_seen && IS_PROBED.swap(0, Ordering::Relaxed) != 0 {
        UNPROBED.store(0, Ordering::Relaxed);
    }
    UNTIL_NS.store(now_ns.saturating_add(VALID_NS), Ordering::Relaxed);
    RESIDENT.store(if is_refused { 0 } else { births.resident_bytes }, Ordering::Relaxed);
}

/// What became of which mappings since the last call, as far as it is known.
pub fn take() -> [Option<(u64, Birth)>; NEWS] {
    let mut news = [None; NEWS];
    if IS_NEWS.swap(0, Ordering::Acquire) != 0 {
        for (news, born) in news.iter_mut().zip(&BORN) {
            *news = match born.swap(0, Ordering::Relaxed) {
                0 => None,
                address if address & IS_PROBE != 0 => Some((address - IS_PROBE, Birth::Probe)),
                address => Some((address, Birth::Advised)),
            };
        }
    }
    news
}

/// Maps memory as the C library's function of this name.
///
/// # Safety
/// As the C library's function of this name.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    file: i32,
    offset: usize,
) -> usize {
    // SAFETY: the caller's.
    let mapped = unsafe { map(address, bytes, protection, flags, file, offset) };
    let births = Births {
        resident_bytes: RESIDENT.load(Ordering::Relaxed),
        is_seen: false,
    };
    if mapped != FAILED
        && births.is_candidate(bytes as u64)
        && flags & (PRIVATE_ANONYMOUS | OTHERS) == PRIVATE_ANONYMOUS
        && protection & READ_WRITE == READ_WRITE
    {
        advise(births, mapped, bytes);
    }
    mapped
}

/// [`mmap`] by another name.
///
/// # Safety
/// As [`mmap`].
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    file: i32,
    offset: usize,
) -> usize {
    // SAFETY: the caller's.
    unsafe { mmap(address, bytes, protection, flags, file, offset) }
}

fn advise(births: Births, address: usize, bytes: usize) {
    if sys::now_ns() > UNTIL_NS.load(Ordering::Relaxed) {
        return;
    }
    let nth = CANDIDATES.fetch_add(1, Ordering::Relaxed);
    let news = match births.of(bytes as u64, nth, UNPROBED.load(Ordering::Relaxed)) {
        Birth::Unknown => return,
        Birth::Probe => {
            IS_PROBED.store(1, Ordering::Relaxed);
            address as u64 | IS_PROBE
        }
        Birth::Advised => {
            let advise = || sys::madvise(address as u64, bytes as u64, advice::HUGEPAGE);
            let advised = remap::under_way(advice::HUGEPAGE, advise);
            if let Err(error @ (sys::EPERM | sys::EACCES | sys::ENOSYS)) = advised {
                IS_REFUSED.store(1, Ordering::Relaxed);
                status::set(Field::AdviseOff, u64::from(error.0.unsigned_abs()));
            }
            if advised.is_err() {
                return;
            }
            UNPROBED.fetch_add(bytes as u64, Ordering::Relaxed);
            status::add(Field::Born, 1);
            status::add(Field::Advised, 1);
            status::add(Field::AdvisedRegions, bytes as u64 / REGION);
            address as u64
        }
    };
    if let Some(place) = BORN.get(nth as usize % NEWS) {
        place.store(news, Ordering::Relaxed);
    }
    IS_NEWS.store(1, Ordering::Release);
}

/// # Safety
/// As [`mmap`].
unsafe fn map(address: usize, bytes: usize, protection: i32, flags: i32, file: i32, offset: usize) -> usize {
    let next = NEXT.load(Ordering::Relaxed);
    if next != 0 {
        type Map = unsafe extern "C" fn(usize, usize, i32, i32, i32, usize) -> usize;
        // SAFETY: the C library's signature.
        let next: Map = unsafe { core::mem::transmute(next) };
        // SAFETY: the caller's.
        return unsafe { next(address, bytes, protection, flags, file, offset) };
    }
    let arguments = [
        address,
        bytes,
        protection as usize,
        flags as usize,
        file as usize,
        offset,
    ];
    // SAFETY: the caller's.
    match unsafe { sys::call(sys::number::MMAP, arguments) } {
        Ok(mapped) => mapped,
        Err(error) => {
            libc::set_errno(error.0);
            FAILED
        }
    }
}
