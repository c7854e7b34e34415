//! Where the kernel keeps its page tables and `struct page`s, found at start-up without trusting any constant.
//!
//! 1. A page of a memfd is filled with random words, and its frame number read from `/proc/self/pagemap`.
//! 2. The program searches downwards from our top-level table, which lies in the direct map, in steps of 1 GB (what
//!    KASLR moves it by) for a base at which that frame holds those words: the direct map.
//! 3. The memfd's page cache holds one page, so its tree is a single pointer: the `struct page` of the same frame.
//!    Taking away the frame number times the size of `struct page` gives the vmemmap base.
//! 4. Walking our own tables with four levels, then five, must arrive at that frame: the number of levels.
//!
//! Without frame numbers (no CAP_SYS_ADMIN) the kallsyms addresses of `page_offset_base` and `vmemmap_base` are used,
//! where the kernel lists data symbols.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use super::intf::*;
use super::object::Object;
use super::raw::{self, Mapping};
use super::{ScanError, BASE_BYTES, REGION_BYTES};

/// A result with the reason for what is missing.
pub(super) struct Located {
    pub machine: Machine,
    /// Why there is no vmemmap base, if there is none.
    pub no_vmemmap: Option<String>,
    /// `page frame` or `kallsyms`.
    pub by: &'static str,
    pub young_bit: u32,
    pub direct_loads: bool,
}

/// Frame number of one of our own pages, from `/proc/self/pagemap`; `None` where it is hidden.
fn frame_of(address: u64) -> Option<u64> {
    let mut entry = [0u8; 8];
    File::open("/proc/self/pagemap")
        .ok()?
        .read_exact_at(&mut entry, address / BASE_BYTES * 8)
        .ok()?;
    let entry = u64::from_ne_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

/// Address of a symbol from /proc/kallsyms, if it is listed and shown.
fn symbol(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/kallsyms").ok()?;
    let line = text.lines().find(|l| l.split_ascii_whitespace().nth(2) == Some(name))?;
    u64::from_str_radix(line.split_ascii_whitespace().next()?, 16)
        .ok()
        .filter(|&a| a != 0)
}

fn ask(object: &mut Object, request: Request) -> Result<Reply, ScanError> {
    object.shared().request = request;
    object.run(raw::gettid())
}

/// The entry that maps one of our own addresses.
pub(super) fn probe(object: &mut Object, address: u64) -> Result<(u64, u32), ScanError> {
    let reply = ask(
        object,
        Request {
            mode: MODE_PROBE,
            address,
            ..Request::default()
        },
    )?;
    Ok((reply.entry, reply.entry_shift))
}

fn frame_mask() -> u64 {
    // Physical addresses of entries are bits 12 to 51 (Intel SDM volume 3, 4.5).
    ((1 << 52) - 1) & !(BASE_BYTES - 1) & !raw::encryption_mask()
}

pub(super) fn locate(object: &mut Object) -> Result<Located, ScanError> {
    let file = raw::memfd().map_err(ScanError::io("creating a memfd"))?;
    file.set_len(BASE_BYTES).map_err(ScanError::io("sizing a memfd"))?;
    let page = Mapping::shared(file.as_fd(), BASE_BYTES as usize).map_err(ScanError::io("mapping a memfd"))?;
    let address = page.base().as_ptr() as u64;
    let mut random = [0u8; NEEDLE_WORDS * 8];
    File::open("/dev/urandom")
        .and_then(|f| f.read_exact_at(&mut random, 0))
        .map_err(ScanError::io("reading /dev/urandom"))?;
    let mut needle = [0u64; NEEDLE_WORDS];
    for (i, (word, bytes)) in needle.iter_mut().zip(random.chunks_exact(8)).enumerate() {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        page.put(address + i as u64 * 8, *word);
    }
    let mut last = String::from("the page kept moving");
    // The page may be migrated between two looks; its frame number tells.
    for _ in 0..4 {
        let Some(frame) = frame_of(address) else {
            last = "frame numbers are hidden (needs CAP_SYS_ADMIN)".into();
            break;
        };
        match by_frame(object, &file, address, frame, needle) {
            Ok(located) if frame_of(address) == Some(frame) => return with_zero_pages(object, located),
            Ok(_) => {}
            Err(ScanError::Refused { why, .. }) => last = why,
            Err(e) => return Err(e),
        }
    }
    match by_kallsyms(object) {
        Some(located) => with_zero_pages(object, located),
        None => Err(ScanError::refused(
            "ebpf",
            format!("direct map not found: {last}; not in /proc/kallsyms either"),
        )),
    }
}

fn by_frame(
    object: &mut Object,
    file: &File,
    address: u64,
    frame: u64,
    needle: [u64; NEEDLE_WORDS],
) -> Result<Located, ScanError> {
    let refused = |why: &str| ScanError::refused("ebpf", why);
    let hello = ask(object, Request::default())?;
    let mut base = hello.pgd & !((1 << 30) - 1);
    let mut found = None;
    // The direct map cannot be larger than the kernel's half: 64 TB with four levels; machines beyond 16 TB give up.
    for _ in 0..4 {
        let request = Request {
            mode: MODE_FIND_DIRECT,
            address: base,
            frame,
            needle,
            ..Request::default()
        };
        let reply = ask(object, request)?;
        if reply.status == STATUS_OK {
            found = Some(reply.found);
            break;
        }
        base = base
            .checked_sub(4096 << 30)
            .ok_or_else(|| refused("no direct map below the page tables"))?;
    }
    let direct_map = found.ok_or_else(|| refused("no direct map within 16 TB below the page tables"))?;

    let fd = file.as_raw_fd() as u32;
    let reply = ask(
        object,
        Request {
            mode: MODE_FIND_PAGE,
            fd,
            ..Request::default()
        },
    )?;
    let vmemmap = reply.found.wrapping_sub(frame.wrapping_mul(u64::from(reply.page_size)));
    // KASLR moves the vmemmap by gigabytes too; anything else is not that base.
    let known = reply.status == STATUS_OK && reply.found >> 56 == 0xff && vmemmap % (1 << 30) == 0;
    let mut machine = Machine {
        direct_map,
        vmemmap: if known { vmemmap } else { 0 },
        frame_mask: frame_mask(),
        zero_entry: NO_FRAME,
        huge_zero_entry: NO_FRAME,
        levels: 4,
        pad: 0,
    };
    for levels in [4, 5] {
        machine.levels = levels;
        object.shared().machine = machine;
        let (entry, shift) = probe(object, address)?;
        if shift == 12 && entry & 1 == 1 && (entry & machine.frame_mask) / BASE_BYTES == frame {
            let no_vmemmap = (!known).then(|| "the page cache of a memfd is not one page pointer here".to_string());
            return Ok(located(machine, no_vmemmap, "page frame", hello));
        }
    }
    Err(refused("walking our own page tables does not arrive at our own page"))
}

fn by_kallsyms(object: &mut Object) -> Option<Located> {
    let mut read = |name: &str| {
        let address = symbol(name)?;
        let reply = ask(
            object,
            Request {
                mode: MODE_READ_WORD,
                address,
                ..Request::default()
            },
        )
        .ok()?;
        (reply.found != 0).then_some(reply.found)
    };
    let direct_map = read("page_offset_base")?;
    let vmemmap = read("vmemmap_base").unwrap_or(0);
    let hello = ask(object, Request::default()).ok()?;
    // The processor's flag is cleared where the kernel does not use five levels.
    let five = fs::read_to_string("/proc/cpuinfo")
        .ok()?
        .lines()
        .any(|l| l.starts_with("flags") && l.contains(" la57"));
    let machine = Machine {
        direct_map,
        vmemmap,
        frame_mask: frame_mask(),
        zero_entry: NO_FRAME,
        huge_zero_entry: NO_FRAME,
        levels: if five { 5 } else { 4 },
        pad: 0,
    };
    object.shared().machine = machine;
    let why = (vmemmap == 0).then(|| "no vmemmap_base in /proc/kallsyms".to_string());
    Some(located(machine, why, "kallsyms", hello))
}

fn located(machine: Machine, no_vmemmap: Option<String>, by: &'static str, hello: Reply) -> Located {
    Located {
        machine,
        no_vmemmap,
        by,
        young_bit: hello.young_bit,
        direct_loads: hello.direct_loads == 1,
    }
}

/// Reading untouched memory maps the shared zero page: its entry shows the frame.
fn with_zero_pages(object: &mut Object, mut located: Located) -> Result<Located, ScanError> {
    let memory = Mapping::anonymous(3 * REGION_BYTES as usize).map_err(ScanError::io("mapping memory"))?;
    let small = memory.aligned();
    // Without transparent huge pages in the kernel the advice is refused, and there is no huge zero page either.
    let _ = memory.advise(small, REGION_BYTES, libc::MADV_NOHUGEPAGE);
    memory.get(small);
    let (entry, shift) = probe(object, small)?;
    if shift == 12 && entry & 3 == 1 {
        located.machine.zero_entry = entry & located.machine.frame_mask;
    }
    // Our address space keeps the huge zero page, once taken, until we exit, so its frame stays the same.
    let huge = small + REGION_BYTES;
    if memory.advise(huge, REGION_BYTES, libc::MADV_HUGEPAGE).is_ok() {
        memory.get(huge);
        let (entry, shift) = probe(object, huge)?;
        if shift == 21 && entry & 3 == 1 && entry & 0x80 != 0 {
            located.machine.huge_zero_entry = entry & located.machine.frame_mask & !(REGION_BYTES - 1);
        }
    }
    object.shared().machine = located.machine;
    Ok(located)
}
