//! `mmap` of a program whose memory is known to be filled densely: advised before its first touch.
//!
//! The helper says what may be; the program's own call advises. So nobody has to look in time, and memory of which
//! nobody knows yet can be advised as a whole. In a static program, which calls no function of ours, who has begun the
//! agent has its system calls come by here (`mega_linux::agent::inject`).

use core::arch::global_asm;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use mega_range::birth::{Birth, Births, New, PROBED};
use mega_range::page::Field;
use mega_range::span::REGION;

use crate::sys::{self, advice};
use crate::{children, libc, next, remap, status};

const FAILED: usize = usize::MAX;
const READ_WRITE: i32 = 3;
const PRIVATE_ANONYMOUS: i32 = 0x22;
/// The program has placed it.
const FIXED: i32 = 0x10;
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
/// Those of them since the last probe, or since contents have shown how they are filled.
static SINCE: AtomicU32 = AtomicU32::new(0);
/// Bytes advised since the last probe, and whether there was one since the helper last spoke: more is advised once it has
/// spoken again.
static UNPROBED: AtomicU64 = AtomicU64::new(0);
static IS_PROBED: AtomicU32 = AtomicU32::new(0);
/// What the probe that is being made of pieces still needs.
static PROBING: AtomicU64 = AtomicU64::new(0);
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
    if births.is_filled {
        UNPROBED.store(0, Ordering::Relaxed);
        SINCE.store(0, Ordering::Relaxed);
    }
    UNTIL_NS.store(now_ns.saturating_add(VALID_NS), Ordering::Relaxed);
    RESIDENT.store(if is_refused { 0 } else { births.resident_bytes }, Ordering::Relaxed);
}

/// Whether anything was born since.
pub fn has_news() -> bool {
    IS_NEWS.load(Ordering::Relaxed) != 0
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
    if mapped != FAILED {
        children::maps(bytes as u64);
        born(mapped, bytes, protection, flags);
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

/// What has just been mapped, before anybody touches it.
fn born(address: usize, bytes: usize, protection: i32, flags: i32) {
    let births = Births {
        resident_bytes: RESIDENT.load(Ordering::Relaxed),
        ..Births::default()
    };
    let new = New {
        bytes: bytes as u64,
        is_piece: flags & FIXED != 0,
    };
    if births.is_candidate(new)
        && flags & (PRIVATE_ANONYMOUS | OTHERS) == PRIVATE_ANONYMOUS
        && protection & READ_WRITE == READ_WRITE
        && sys::now_ns() <= UNTIL_NS.load(Ordering::Relaxed)
    {
        advise(births, address, new);
    }
}

fn advise(births: Births, address: usize, new: New) {
    let bytes = new.bytes;
    let nth = CANDIDATES.fetch_add(1, Ordering::Relaxed);
    let since = SINCE.fetch_add(1, Ordering::Relaxed);
    // A probe takes as many pieces as it needs regions.
    let probing = if new.is_piece {
        PROBING.load(Ordering::Relaxed)
    } else {
        0
    };
    let unprobed = if probing > 0 {
        u64::MAX
    } else {
        UNPROBED.load(Ordering::Relaxed)
    };
    let news = match births.of(new, since, unprobed) {
        Birth::Unknown => return,
        Birth::Probe => {
            if new.is_piece {
                let needed = if probing > 0 {
                    probing
                } else {
                    u64::from(PROBED) * REGION
                };
                PROBING.store(needed.saturating_sub(bytes), Ordering::Relaxed);
            }
            IS_PROBED.store(1, Ordering::Relaxed);
            SINCE.store(0, Ordering::Relaxed);
            address as u64 | IS_PROBE
        }
        Birth::Advised => {
            let advise = || sys::madvise(address as u64, bytes, advice::HUGEPAGE);
            let advised = remap::under_way(advice::HUGEPAGE, advise);
            if let Err(error @ (sys::EPERM | sys::EACCES | sys::ENOSYS)) = advised {
                IS_REFUSED.store(1, Ordering::Relaxed);
                status::set(Field::AdviseOff, u64::from(error.0.unsigned_abs()));
            }
            if advised.is_err() {
                return;
            }
            UNPROBED.fetch_add(bytes, Ordering::Relaxed);
            status::add(Field::Born, 1);
            status::add(Field::Advised, 1);
            status::add(Field::AdvisedRegions, bytes / REGION);
            address as u64
        }
    };
    if let Some(place) = BORN.get(nth as usize % NEWS) {
        place.store(news, Ordering::Relaxed);
    }
    IS_NEWS.store(1, Ordering::Release);
}

/// The process that has begun: without a C library nobody says when it forks.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Where a static program's own `mmap` and `mremap` go on, all registers as the kernel has left them, and the call's
/// number in ecx.
pub fn of_static() -> usize {
    extern "C" {
        fn mega_agent_called();
    }
    OWNER.store(sys::getpid(), Ordering::Relaxed);
    mega_agent_called as *const () as usize
}

// Called right behind the system call, of which compilers know that it changes rax, rcx and r11 alone, and no flags:
// nor does this. Small mappings, calls that have failed, and moves (25) that have not with EFAULT (14), are over soon.
global_asm!(
    ".globl mega_agent_called",
    ".hidden mega_agent_called",
    "mega_agent_called:",
    "pushfq",
    "cmp ecx, 25",
    "je 3f",
    "cmp rsi, 0x200000",
    "jb 2f",
    "cmp rax, -4096",
    "ja 2f",
    "push rax",
    "lea r11, [rip + {born}]",
    "jmp 4f",
    "3:",
    "cmp rax, -14",
    "jne 2f",
    "push rax",
    "lea r11, [rip + {torn}]",
    "4:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    "sub rsp, 256",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    "cld",
    "mov r9, rdi",
    "mov rdi, rax",
    "mov rcx, r10",
    "call r11",
    "mov [rbp + 56], rax",
    "movaps xmm0, [rsp]",
    "movaps xmm1, [rsp + 16]",
    "movaps xmm2, [rsp + 32]",
    "movaps xmm3, [rsp + 48]",
    "movaps xmm4, [rsp + 64]",
    "movaps xmm5, [rsp + 80]",
    "movaps xmm6, [rsp + 96]",
    "movaps xmm7, [rsp + 112]",
    "movaps xmm8, [rsp + 128]",
    "movaps xmm9, [rsp + 144]",
    "movaps xmm10, [rsp + 160]",
    "movaps xmm11, [rsp + 176]",
    "movaps xmm12, [rsp + 192]",
    "movaps xmm13, [rsp + 208]",
    "movaps xmm14, [rsp + 224]",
    "movaps xmm15, [rsp + 240]",
    "mov rsp, rbp",
    "pop rbp",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "2:",
    "popfq",
    "ret",
    born = sym born_in_static,
    torn = sym remap::torn_in_static,
);

/// A static program has mapped something. Returns what its call returns.
extern "C" fn born_in_static(address: usize, bytes: usize, protection: i32, flags: i32) -> usize {
    if RESIDENT.load(Ordering::Relaxed) > 0 && OWNER.load(Ordering::Relaxed) == sys::getpid() {
        born(address, bytes, protection, flags);
    }
    address
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
