//! The eBPF scanner: the page tables themselves, read by `bpf/scan.bpf.c`.

use super::intf::*;
use super::locate::{self, Located};
use super::maps::{self, RawVma, VmaKind};
use super::object::Object;
use super::{
    check_address, check_ranges, pagemap, raw, selfcheck, PageMap, RegionFlags, RegionScan, ScanError, ScanRange,
    Scanner, ZeroFilled, BASE_PAGES, REGION_BYTES,
};

/// PTE tables read per call: 1 GB of base pages, 0.4 ms. BPF does not reschedule meanwhile.
const TABLES_MAX: u32 = 512;
/// The same where the page flags of cold pages are looked at too.
const TABLES_MAX_YOUNG: u32 = 128;
/// Time after which no further huge page's contents are begun in one call; one takes up to 0.4 ms.
const CONTENTS_NS: u64 = 1_500_000;
/// Reads that may get nowhere before a scan gives up.
const STUCK_MAX: u32 = 8;

/// What the eBPF scanner can do here, with the reasons for what it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Levels of page tables: 4 or 5.
    pub page_table_levels: u32,
    /// How the kernel's tables were found: `page frame` or `kallsyms`.
    pub located_by: &'static str,
    /// PG_young can be seen; else why not.
    pub young: Result<(), String>,
    /// Shared pages can be sampled; else why not.
    pub shared: Result<(), String>,
    /// `struct page` is read by plain loads (`bpf_rdonly_cast`, Linux 6.2) and not by a helper call each.
    pub direct_loads: bool,
    /// VMAs come from the BPF iterator; else why they are parsed from smaps, which costs 10 ms per GB.
    pub vma_iterator: Result<(), String>,
}

/// The eBPF scanner. One per thread that scans; each has a program and maps of its own (about 0.2 MB).
pub struct BpfScanner {
    object: Object,
    capabilities: Capabilities,
}

impl BpfScanner {
    /// Loads the program, finds the kernel's tables and compares what it sees of our own memory with the truth.
    ///
    /// # Errors
    /// Built without eBPF, no BTF, no CAP_BPF and CAP_PERFMON, or the self-check failed.
    pub fn new() -> Result<BpfScanner, ScanError> {
        let mut object = Object::load()?;
        let Located {
            machine,
            no_vmemmap,
            by,
            young_bit,
            direct_loads,
        } = locate::locate(&mut object)?;
        let shared = no_vmemmap.map_or(Ok(()), Err);
        let young = match &shared {
            Ok(()) if young_bit >= 64 => Err("the kernel has no PG_young (CONFIG_PAGE_IDLE_FLAG)".into()),
            other => other.clone(),
        };
        let mut scanner = BpfScanner {
            object,
            capabilities: Capabilities {
                page_table_levels: machine.levels,
                located_by: by,
                young,
                shared,
                direct_loads,
                vma_iterator: Ok(()),
            },
        };
        let young = scanner.capabilities.young.is_ok();
        selfcheck::tables("ebpf", &mut scanner, young)?;
        scanner.capabilities.vma_iterator = selfcheck::vmas(&mut scanner);
        Ok(scanner)
    }

    /// What works here and what does not, for `mega doctor`.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// One call of the program; returns where to go on, or `None` when all ranges are done.
    fn scan_once(
        &mut self,
        pid: i32,
        ranges: &[Range],
        out: &mut Vec<RegionScan>,
    ) -> Result<Option<(usize, u64)>, ScanError> {
        let young = ranges.iter().any(|r| r.flags & RANGE_YOUNG != 0);
        let shared = self.object.shared();
        shared.ranges[..ranges.len()].copy_from_slice(ranges);
        shared.request = Request {
            mode: MODE_SCAN,
            nr_ranges: ranges.len() as u32,
            tables_max: if young { TABLES_MAX_YOUNG } else { TABLES_MAX },
            ..Request::default()
        };
        let reply = self.object.run(pid)?;
        let (from, to) = (ranges[0].start, ranges[ranges.len() - 1].end);
        let (low, high) = ranges
            .iter()
            .fold((from, to), |(l, h), r| (l.min(r.start), h.max(r.end)));
        for raw in self.object.shared().regions.iter().take(reply.nr_regions as usize) {
            let counts = [
                raw.mapped,
                raw.accessed,
                raw.dirty,
                raw.zero,
                raw.write_protected,
                raw.swapped,
            ];
            let inside = raw.address >= low && raw.address < high && raw.address % REGION_BYTES == 0;
            if !inside || counts.iter().any(|&c| c > BASE_PAGES) {
                return Err(ScanError::refused("ebpf", format!("impossible answer {raw:?}")));
            }
            out.push(RegionScan {
                flags: RegionFlags::from_bits(raw.flags.bits()),
                ..*raw
            });
        }
        Ok(match reply.complete {
            1 => None,
            _ => Some((reply.range as usize, reply.next)),
        })
    }
}

fn bpf_range(r: &ScanRange) -> Range {
    Range {
        start: r.start,
        end: r.end,
        flags: if r.young { RANGE_YOUNG } else { 0 },
    }
}

impl BpfScanner {
    fn contents(
        &mut self,
        pid: i32,
        addresses: &[u64],
        flags: u64,
        out: &mut Vec<ZeroFilled>,
    ) -> Result<(), ScanError> {
        addresses.iter().try_for_each(|&a| check_address(a))?;
        let mut left = addresses;
        while !left.is_empty() {
            let batch = &left[..left.len().min(CONTENTS_MAX)];
            let shared = self.object.shared();
            for (range, &start) in shared.ranges.iter_mut().zip(batch) {
                *range = Range {
                    start,
                    end: start + REGION_BYTES,
                    flags,
                };
            }
            shared.request = Request {
                mode: MODE_CONTENTS,
                nr_ranges: batch.len() as u32,
                deadline_ns: raw::monotonic_ns() + CONTENTS_NS,
                ..Request::default()
            };
            let done = (self.object.run(pid)?.nr_regions as usize).min(batch.len());
            if done == 0 {
                return Err(ScanError::refused("ebpf", "reading contents does not get on"));
            }
            for (raw, &address) in self.object.shared().contents.iter().zip(&batch[..done]) {
                if raw.address != address || raw.checked > BASE_PAGES || raw.zero > raw.checked {
                    return Err(ScanError::refused("ebpf", format!("impossible answer {raw:?}")));
                }
                let raced = RegionFlags::from_bits(raw.flags).contains(RegionFlags::RACED);
                out.push(ZeroFilled {
                    address,
                    zero_filled: raw.zero,
                    checked: raw.checked,
                    raced,
                    time_ns: raw.time_ns,
                });
            }
            left = &left[done..];
        }
        Ok(())
    }
}

impl Scanner for BpfScanner {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn sees_accessed(&self) -> bool {
        true
    }

    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError> {
        if self.capabilities.vma_iterator.is_err() {
            return maps::read_smaps(pid);
        }
        let bytes = self.object.vma_records(pid)?;
        if bytes.len() % VMA_RECORD != 0 {
            return Err(ScanError::refused(
                "VMA iterator",
                format!("{} bytes are no whole records", bytes.len()),
            ));
        }
        let mut vmas: Vec<RawVma> = Vec::with_capacity(bytes.len() / VMA_RECORD);
        for record in bytes.chunks_exact(VMA_RECORD) {
            let word = |i: usize| u64::from_ne_bytes(record[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
            let kind = match word(3) {
                0 => VmaKind::Anonymous,
                1 => VmaKind::File,
                2 => VmaKind::Shmem,
                _ => VmaKind::Special,
            };
            let vma = RawVma {
                start: word(0),
                end: word(1),
                vm_flags: word(2),
                kind,
            };
            // Mappings may change between two records: keep those that are in order.
            if vma.start < vma.end && vmas.last().is_none_or(|last| last.end <= vma.start) {
                vmas.push(vma);
            }
        }
        Ok(vmas)
    }

    fn scan(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        check_ranges(ranges)?;
        let mut todo: Vec<Range> = Vec::with_capacity(ranges.len().min(RANGES_MAX));
        let (mut next, mut stuck) = (0, 0);
        loop {
            while todo.len() < RANGES_MAX && next < ranges.len() {
                todo.push(bpf_range(&ranges[next]));
                next += 1;
            }
            if todo.is_empty() {
                return Ok(());
            }
            match self.scan_once(pid, &todo, out)? {
                None => todo.clear(),
                Some((index, at)) => {
                    let moved = index > 0 || at > todo.first().map_or(0, |r| r.start);
                    stuck = if moved { 0 } else { stuck + 1 };
                    if index >= todo.len() || stuck > STUCK_MAX {
                        return Err(ScanError::refused("ebpf", "the scan does not get on"));
                    }
                    todo.drain(..index);
                    todo[0].start = at.clamp(todo[0].start, todo[0].end);
                }
            }
        }
    }

    fn page_map(&mut self, pid: i32, address: u64) -> Result<PageMap, ScanError> {
        check_address(address)?;
        self.object.shared().request = Request {
            mode: MODE_PAGE_MAP,
            address,
            ..Request::default()
        };
        self.object.run(pid)?;
        let bits = self.object.shared().page_map;
        Ok(PageMap {
            mapped: bits.mapped,
            accessed: bits.accessed,
            dirty: bits.dirty,
            zero: bits.zero,
            flags: RegionFlags::from_bits(bits.flags as u16),
        })
    }

    fn zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        self.contents(pid, addresses, 0, out)
    }

    fn at_most_zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        self.contents(pid, addresses, RANGE_HEADS, out)
    }

    fn fork_shared(&mut self, pid: i32, address: u64) -> Result<u16, ScanError> {
        let zero = self.page_map(pid, address)?.zero;
        pagemap::fork_shared(pid, address, &zero)
    }
    fn forget(&mut self, pid: i32) {
        self.object.forget(pid);
    }
}
