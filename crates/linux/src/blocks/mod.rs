//! Reading physical memory block by block: /proc/kpageflags in bulk, zones from /proc/zoneinfo, holes from /proc/iomem, and
//! /proc/buddyinfo to check against.
//!
//! /proc/kpagecount is not read: flag MMAP says whether a page is mapped, and a second file would double the time. Nor is
//! /proc/kpagecgroup: nothing here depends on whose a page is.
//!
//! What a stock kernel does not say: which pages are pinned (they count as movable), and which pages of physical memory were accessed
//! (`accessed` stays unknown; page_idle is off in most distributions).
//!
//! Reading costs about 20 ms per GB, so up to 32 GB every block is read, and of larger machines every n-th one; what was read says which.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mega_core::compaction::block::{Block, BlockKind, Hpfn, PageKind, Zone, ZoneKind};
use mega_core::units::{BasePages, Blocks, BASE_PAGE_BYTES, REGION_PAGES};

use crate::error::Error;
use crate::module::ModuleError;
use crate::proc::{buddyinfo, iomem, zoneinfo, ProcRoot};

mod by_module;
mod flags;
pub mod fragmentation;

pub use by_module::read_by_module;

/// Bytes of kpageflags that say one block.
const BLOCK_FLAGS_BYTES: usize = REGION_PAGES as usize * 8;
/// Blocks per read: 1 MB of flags.
const BATCH: usize = 256;
/// Blocks that are read at most unless more are asked for: 32 GB, under a second.
const AUTO_MAX: u64 = 1 << 14;
/// Blocks that are read at most whatever is asked for: 8 TB, 120 MB of ours.
const MAX: u64 = 1 << 22;
/// Frame numbers end here: physical addresses have 52 bits at most.
const FRAMES_MAX: u64 = 1 << 40;

/// Which blocks to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sampling {
    /// All of a machine of up to 32 GB, as many evenly spaced ones of a larger one.
    #[default]
    Auto,
    /// Every n-th.
    Every(NonZeroU32),
}

/// Free memory as the buddy allocator counts it, to hold what was read against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BuddyCheck {
    /// Free base pages of /proc/buddyinfo just before the read.
    pub before_pages: u64,
    /// And just after.
    pub after_pages: u64,
    /// Base pages on the processors' own free lists, from /proc/zoneinfo.
    pub per_cpu_pages: u64,
}

/// Physical memory at one look.
#[derive(Debug, Clone)]
pub struct Physical {
    /// The blocks that were read, by rising number. What lies outside of all zones is not listed.
    pub blocks: Vec<Block>,
    /// The zones with memory, by rising address; a block's `zone` is an index into them.
    pub zones: Vec<Zone>,
    /// Every n-th block was read; 1: all.
    pub every: u32,
    /// Blocks that the zones span.
    pub spanned: Blocks,
    /// To check against.
    pub buddy: BuddyCheck,
    /// The kernel said where memory is. If not, holes look like pages without a flag.
    pub holes_known: bool,
    /// How long the look took.
    pub took: Duration,
}

impl Physical {
    /// Base pages of this kind in the blocks that were read.
    pub fn pages(&self, kind: PageKind) -> u64 {
        self.blocks.iter().map(|b| u64::from(b.pages(kind).0)).sum()
    }

    /// Blocks of this kind among those that were read.
    pub fn blocks_of(&self, kind: BlockKind) -> Blocks {
        Blocks(self.blocks.iter().filter(|b| b.kind() == kind).count() as u64)
    }

    /// What has to be said beside any figure of this look.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.every > 1 {
            notes.push(format!("sampled: one block in {} was read", self.every));
        }
        if !self.holes_known {
            notes.push("/proc/iomem hides where memory is: holes look like pages without a flag".into());
        }
        let found = self.pages(PageKind::Free) * u64::from(self.every);
        let fewest = self.buddy.before_pages.min(self.buddy.after_pages);
        // Half is far outside of what changes during a look, and of what a sample is off by, on any machine with 64 MB free.
        if found < fewest / 2 && fewest > (64 << 20) / BASE_PAGE_BYTES {
            notes.push(format!(
                "this kernel marks {found} pages as free where /proc/buddyinfo has {fewest}: free is read too low"
            ));
        }
        notes
    }
}

/// Why physical memory could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlocksError {
    /// We may not.
    #[error(
        "physical memory cannot be seen: {0} (needs root and CAP_SYS_ADMIN; free memory in /proc/buddyinfo and the page tables of one's \
         own processes can be seen without)"
    )]
    Refused(#[source] Error),
    /// The kernel was built without it.
    #[error("physical memory cannot be seen: {0} (the kernel needs CONFIG_PROC_PAGE_MONITOR)")]
    Missing(#[source] Error),
    /// The file is there and empty.
    #[error("{}: says nothing about any page", .0.display())]
    Empty(PathBuf),
    /// There is no zone with memory.
    #[error("{}: no zone with memory and a start_pfn", .0.display())]
    NoZones(PathBuf),
    /// Another file.
    #[error(transparent)]
    Proc(#[from] Error),
    /// mega.ko said no.
    #[error(transparent)]
    Module(#[from] ModuleError),
}

/// Reads physical memory. Takes 1 MB and 28 bytes per block read.
///
/// # Errors
/// Not permitted, not supported, or a file that is not what it should be.
pub fn read(root: &ProcRoot, sampling: Sampling) -> Result<Physical, BlocksError> {
    let began = Instant::now();
    let path = root.proc.join("kpageflags");
    let file = File::open(&path).map_err(|e| refused(&path, "open", e))?;
    let zoneinfo = zoneinfo::read(root)?;
    let before = buddyinfo::read(root)?;
    // Without it everything still works but the telling of holes.
    let ram = iomem::read(root).ok().flatten();
    let mut zones = zones(&zoneinfo);
    let ranges = block_ranges(&zones);
    let spanned: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if spanned == 0 {
        return Err(BlocksError::NoZones(root.proc.join("zoneinfo")));
    }
    let every = match sampling {
        Sampling::Auto => spanned.div_ceil(AUTO_MAX),
        Sampling::Every(n) => u64::from(n.get()).max(spanned.div_ceil(MAX)),
    };
    let look = Look {
        path: &path,
        file: &file,
        zones: &zones,
        ram: ram.as_deref(),
        every,
    };
    let blocks = look.read(&ranges, (spanned / every + 1) as usize)?;
    let after = buddyinfo::read(root)?;
    count_free(&mut zones, &after);
    let per_cpu_pages = zoneinfo.iter().filter_map(|zone| zone.percpu_pages);
    Ok(Physical {
        blocks,
        zones,
        every: every as u32,
        spanned: Blocks(spanned),
        buddy: BuddyCheck {
            before_pages: before.free_pages(),
            after_pages: after.free_pages(),
            per_cpu_pages: per_cpu_pages.fold(0, u64::saturating_add),
        },
        holes_known: ram.is_some(),
        took: began.elapsed(),
    })
}

/// Reads these blocks alone, whatever zone they are in: to see what became of them.
///
/// # Errors
/// As [`read`].
pub fn look_at(root: &ProcRoot, blocks: &[Hpfn]) -> Result<Vec<Block>, BlocksError> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let path = root.proc.join("kpageflags");
    let file = File::open(&path).map_err(|e| refused(&path, "open", e))?;
    let look = Look {
        path: &path,
        file: &file,
        zones: &[],
        ram: None,
        every: 1,
    };
    let mut buffer = vec![0u8; BLOCK_FLAGS_BYTES];
    let mut seen = Vec::with_capacity(blocks.len());
    for &hpfn in blocks {
        let bytes = look.fill(hpfn.0.into(), &mut buffer)?;
        let words = buffer[..bytes].chunks_exact(8);
        let flags: Vec<u64> = words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        seen.push(look.block(hpfn, &flags));
    }
    Ok(seen)
}

/// The zones with memory and what is free in each, without a look at any block: well under a millisecond.
///
/// # Errors
/// A file that cannot be read, or is not what it should be.
pub fn free_by_zone(root: &ProcRoot) -> Result<Vec<Zone>, Error> {
    let mut zones = zones(&zoneinfo::read(root)?);
    count_free(&mut zones, &buddyinfo::read(root)?);
    Ok(zones)
}

fn count_free(zones: &mut [Zone], free: &buddyinfo::Buddyinfo) {
    for zone in zones {
        let counted = free.zones.iter().find(|z| z.node == zone.node && z.name == zone.name);
        zone.free_pages = counted.map_or(0, buddyinfo::Zone::free_pages);
        zone.free_blocks = counted.map_or(Blocks(0), buddyinfo::Zone::free_blocks);
    }
}

fn refused(path: &Path, action: &'static str, source: io::Error) -> BlocksError {
    let error = Error::io(path, action, source);
    if error.is_refused() {
        BlocksError::Refused(error)
    } else if error.is_gone() {
        BlocksError::Missing(error)
    } else {
        BlocksError::Proc(error)
    }
}

/// The zones that have memory and say where, by rising address. More than a block can name are left out.
fn zones(zoneinfo: &[zoneinfo::Zone]) -> Vec<Zone> {
    let mut zones: Vec<Zone> = zoneinfo
        .iter()
        .filter_map(|zone| {
            let start = zone.start_pfn.filter(|&start| start < FRAMES_MAX)?;
            let spanned = zone.spanned_pages?.min(FRAMES_MAX - start);
            (spanned > 0).then(|| Zone {
                node: zone.node,
                name: zone.name.clone(),
                kind: ZoneKind::from_name(&zone.name),
                start_frame: start,
                spanned_frames: spanned,
                free_pages: 0,
                free_blocks: Blocks(0),
            })
        })
        .collect();
    zones.sort_by_key(|zone| (zone.start_frame, zone.node));
    zones.truncate(usize::from(Block::NO_ZONE));
    zones
}

/// The blocks that zones span, whole or in part: ranges that do not touch, by rising number.
fn block_ranges(zones: &[Zone]) -> Vec<Range<u64>> {
    let pages = u64::from(REGION_PAGES);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for zone in zones {
        let start = zone.start_frame / pages;
        let end = (zone.start_frame + zone.spanned_frames).div_ceil(pages);
        match ranges.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// One look under way.
struct Look<'a> {
    path: &'a Path,
    file: &'a File,
    zones: &'a [Zone],
    ram: Option<&'a [Range<u64>]>,
    every: u64,
}

impl Look<'_> {
    fn read(&self, ranges: &[Range<u64>], expected: usize) -> Result<Vec<Block>, BlocksError> {
        let mut blocks = Vec::with_capacity(expected.min(MAX as usize));
        let batch = if self.every == 1 { BATCH } else { 1 };
        let mut buffer = vec![0u8; batch * BLOCK_FLAGS_BYTES];
        let mut flags = Vec::with_capacity(REGION_PAGES as usize);
        let mut said = 0;
        for range in ranges {
            let mut at = range.start.next_multiple_of(self.every);
            while at < range.end {
                let count = (range.end - at).min(batch as u64) as usize;
                let bytes = self.fill(at, &mut buffer[..count * BLOCK_FLAGS_BYTES])?;
                said += bytes;
                for i in 0..count {
                    let from = (i * BLOCK_FLAGS_BYTES).min(bytes);
                    let words = buffer[from..bytes.min(from + BLOCK_FLAGS_BYTES)].chunks_exact(8);
                    flags.clear();
                    flags.extend(words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))));
                    blocks.push(self.block(Hpfn((at + i as u64) as u32), &flags));
                }
                at += if self.every == 1 { count as u64 } else { self.every };
            }
        }
        if said == 0 {
            return Err(BlocksError::Empty(self.path.to_owned()));
        }
        Ok(blocks)
    }

    /// Reads the flags from block `at` on; fewer bytes where the file ends.
    fn fill(&self, at: u64, buffer: &mut [u8]) -> Result<usize, BlocksError> {
        let offset = at * BLOCK_FLAGS_BYTES as u64;
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(refused(self.path, "read", e)),
            }
        }
        Ok(filled)
    }

    /// The block with these flags; pages that the file does not reach are no memory.
    fn block(&self, hpfn: Hpfn, flags: &[u64]) -> Block {
        let first = hpfn.first_frame();
        let middle = first + u64::from(REGION_PAGES) / 2;
        // A block on the border of two zones is the one's that has its middle, or any of it.
        let zone = self.zones.iter().position(|zone| zone.spans(middle)).or_else(|| {
            let end = first + u64::from(REGION_PAGES);
            self.zones
                .iter()
                .position(|zone| zone.start_frame < end && zone.start_frame + zone.spanned_frames > first)
        });
        let block = Block::new(hpfn, zone.map_or(Block::NO_ZONE, |i| i as u8));
        let mapped = flags.iter().filter(|&&f| flags::is_mapped(f)).count() as u32;
        let mut pages = [0; PageKind::COUNT];
        if flags.len() == REGION_PAGES as usize && flags::is_huge(flags) {
            pages[PageKind::Huge as usize] = REGION_PAGES;
        } else {
            for &f in flags {
                pages[flags::kind(f) as usize] += 1;
            }
            let outside = self.unflagged_outside(first, flags);
            pages[PageKind::Unflagged as usize] -= outside;
            pages[PageKind::Offline as usize] += outside;
        }
        block.with_pages(pages).with_mapped(BasePages(mapped))
    }

    /// Pages without a flag that are no memory.
    fn unflagged_outside(&self, first: u64, flags: &[u64]) -> u32 {
        let Some(ram) = self.ram else { return 0 };
        let frames = first * BASE_PAGE_BYTES..(first + flags.len() as u64) * BASE_PAGE_BYTES;
        let next = &ram[ram.partition_point(|range| range.end <= frames.start)..];
        if next
            .first()
            .is_some_and(|range| range.start <= frames.start && range.end >= frames.end)
        {
            return 0;
        }
        let is_outside = |&(i, &f): &(usize, &u64)| {
            let address = frames.start + i as u64 * BASE_PAGE_BYTES;
            let inside = next
                .iter()
                .take_while(|range| range.start <= address)
                .any(|range| range.contains(&address));
            !inside && flags::kind(f) == PageKind::Unflagged
        };
        flags.iter().enumerate().filter(is_outside).count() as u32
    }
}

#[cfg(test)]
mod tests;
