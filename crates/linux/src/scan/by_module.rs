//! The scanner that asks mega.ko: page tables read under their locks, and accessed bits cleared without a side effect on the lists of
//! reclaim (MADV_COLD moves what it clears to the inactive list, and passes over locked and shared pages).
//!
//! - Mappings, contents and sharing are the next best scanner's affair: mega.ko does not look at them.
//! - Bits that are cleared go to PG_young where the kernel has it, so that reclaim still learns of the access. Only where a DAMON runs,
//!   which takes accessed bits to the same place, is PG_young looked at, and cleared too.
//! - The shared zero page counts as accessed for ever, as with the other scanners, where MADV_COLD passes it over.

use std::ops::Range;
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::maps::RawVma;
use super::{
    check_address, check_ranges, choose, PageMap, Preference, RegionFlags, RegionScan, ScanError, ScanRange, Scanner,
    ZeroFilled, BASE_PAGES, REGION_BYTES,
};
use crate::deadline;
use crate::module::uapi::{
    Region, RegionMap, CAN_AGE, REGION_GIGANTIC, REGION_HUGE, REGION_HUGETLB, REGION_OTHER, REGION_RACED,
};
use crate::module::{Ageing, Module, ModuleError};
use crate::proc::{stat, task, ProcRoot};
use crate::process::Process;
use crate::sys;

/// Regions of one call: 8 GB, 96 KB of answers.
const MOST: usize = 4096;

/// The scanner that asks mega.ko.
pub struct ModuleScanner {
    module: Arc<Module>,
    /// For what mega.ko does not look at.
    beside: Box<dyn Scanner>,
    /// DAMON takes accessed bits, too.
    damon: bool,
    regions: Vec<Region>,
    maps: Vec<RegionMap>,
}

impl ModuleScanner {
    /// Opens the device, and the best scanner beside it.
    ///
    /// # Errors
    /// mega.ko is not loaded or cannot age, or no scanner works beside it.
    pub fn new() -> Result<Self, ScanError> {
        let refused = |why: String| ScanError::refused("module", why);
        let module = Module::open().map_err(|error| refused(error.to_string()))?;
        if !module.can(CAN_AGE) {
            return Err(refused("this mega.ko cannot read page tables".into()));
        }
        let (beside, _) = choose(Preference::Best)?;
        let mut scanner = Self {
            module: Arc::new(module),
            beside,
            damon: damon_runs(&ProcRoot::default()),
            regions: Vec::new(),
            maps: Vec::new(),
        };
        let young = scanner.damon;
        super::selfcheck::tables("module", &mut scanner, young)?;
        Ok(scanner)
    }

    /// Reads a range; with `clear` the accessed bits are clear afterwards. What was seen is in `self.regions`, and page by page in `self.maps`
    /// if `pages`. mega.ko waits for the lock of the address space.
    fn age(&mut self, process: &Held, range: Range<u64>, how: Ageing, pages: bool) -> Result<(), ModuleError> {
        let (module, pidfd) = (Arc::clone(&self.module), Arc::clone(&process.1));
        let (mut regions, mut maps) = (std::mem::take(&mut self.regions), std::mem::take(&mut self.maps));
        let called = deadline::within(process.0, deadline::CALL, move || {
            regions.clear();
            maps.clear();
            let mut at = range.start;
            while at < range.end {
                let maps = pages.then_some(&mut maps);
                let done = module.age(pidfd.as_fd(), at..range.end, how, MOST, &mut regions, maps)?;
                if done.next <= at {
                    // It always gets on; if not, better to end than to go round for ever.
                    return Err(ModuleError::Call {
                        what: "age: it does not get on",
                        errno: Errno::AGAIN,
                    });
                }
                at = done.next;
            }
            Ok((regions, maps))
        });
        (self.regions, self.maps) = called.unwrap_or(Err(ModuleError::Call {
            what: "age: the address space is locked (mmap_lock)",
            errno: Errno::AGAIN,
        }))?;
        Ok(())
    }

    fn scan_all(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        let process = held(pid)?;
        for range in ranges {
            let how = Ageing {
                young: range.young && self.damon,
                ..Ageing::default()
            };
            self.age(&process, range.start..range.end, how, false).map_err(failed)?;
            for region in std::mem::take(&mut self.regions) {
                let mut scan = seen(&region);
                let partly_zero = scan.zero > 0 && !scan.is_huge() && scan.accessed < scan.mapped;
                if partly_zero {
                    let end = region.address + REGION_BYTES;
                    self.age(&process, region.address..end, how, true).map_err(failed)?;
                    if let ([again], [map]) = (&self.regions[..], &self.maps[..]) {
                        scan = seen(again);
                        let of_own = map
                            .accessed
                            .iter()
                            .zip(&map.zero)
                            .map(|(a, z)| (a & !z).count_ones() as u16);
                        scan.accessed = of_own.sum::<u16>() + scan.zero;
                    }
                }
                out.push(scan);
            }
        }
        Ok(())
    }
}

fn damon_runs(root: &ProcRoot) -> bool {
    let all = task::processes(root).unwrap_or_default();
    all.into_iter()
        .any(|pid| stat::read(root, pid).is_ok_and(|stat| stat.comm.starts_with("kdamond")))
}

fn failed(error: ModuleError) -> ScanError {
    match error {
        ModuleError::Call { errno: Errno::SRCH, .. } => ScanError::Gone,
        other => ScanError::refused("module", other.to_string()),
    }
}

/// A process's number and handle.
type Held = (u32, Arc<OwnedFd>);

fn held(pid: i32) -> Result<Held, ScanError> {
    let number = u32::try_from(pid).map_err(|_| ScanError::Gone)?;
    let pidfd = sys::pidfd_open(number).map(|pidfd| (number, Arc::new(pidfd)));
    pidfd.map_err(|errno| match errno {
        // 0 is nobody's.
        Errno::SRCH | Errno::INVAL => ScanError::Gone,
        errno => ScanError::Io {
            doing: "opening a pidfd",
            source: errno.into(),
        },
    })
}

fn flags(bits: u16) -> RegionFlags {
    let mut flags = RegionFlags::default();
    if bits & (REGION_HUGE | REGION_GIGANTIC | REGION_HUGETLB | REGION_OTHER) != 0 {
        flags.insert(RegionFlags::HUGE);
    }
    if bits & REGION_GIGANTIC != 0 {
        flags.insert(RegionFlags::GIGANTIC);
    }
    if bits & REGION_RACED != 0 {
        flags.insert(RegionFlags::RACED);
    }
    flags
}

fn seen(region: &Region) -> RegionScan {
    RegionScan {
        mapped: region.mapped,
        accessed: (region.accessed + region.young).min(BASE_PAGES),
        dirty: region.dirty,
        zero: region.zero,
        write_protected: region.write_protected,
        swapped: region.swapped,
        flags: flags(region.flags),
        ..RegionScan::at(region.address)
    }
}

impl Scanner for ModuleScanner {
    fn name(&self) -> &'static str {
        "module"
    }

    fn sees_accessed(&self) -> bool {
        true
    }

    fn vmas(&mut self, pid: i32) -> Result<Vec<RawVma>, ScanError> {
        self.beside.vmas(pid)
    }

    fn scan(&mut self, pid: i32, ranges: &[ScanRange], out: &mut Vec<RegionScan>) -> Result<(), ScanError> {
        check_ranges(ranges)?;
        let before = out.len();
        match self.scan_all(pid, ranges, out) {
            // A pidfd is of the leader, which may have left its threads.
            Err(ScanError::Gone) => {
                out.truncate(before);
                self.beside.scan(pid, ranges, out)
            }
            done => done,
        }
    }

    fn forget(&mut self, pid: i32) {
        self.beside.forget(pid);
    }

    fn page_map(&mut self, pid: i32, address: u64) -> Result<PageMap, ScanError> {
        check_address(address)?;
        let how = Ageing {
            young: self.damon,
            ..Ageing::default()
        };
        let process = held(pid)?;
        match self
            .age(&process, address..address + REGION_BYTES, how, true)
            .map_err(failed)
        {
            Err(ScanError::Gone) => return self.beside.page_map(pid, address),
            done => done?,
        }
        let (Some(region), Some(map)) = (self.regions.first(), self.maps.first()) else {
            return Ok(PageMap::default());
        };
        let mut accessed = map.accessed;
        if !flags(region.flags).contains(RegionFlags::HUGE) {
            accessed
                .iter_mut()
                .zip(&map.zero)
                .for_each(|(accessed, zero)| *accessed |= zero);
        }
        Ok(PageMap {
            mapped: map.mapped,
            accessed,
            dirty: map.dirty,
            zero: map.zero,
            flags: flags(region.flags),
        })
    }

    fn zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        self.beside.zero_filled(pid, addresses, out)
    }

    fn at_most_zero_filled(&mut self, pid: i32, addresses: &[u64], out: &mut Vec<ZeroFilled>) -> Result<(), ScanError> {
        self.beside.at_most_zero_filled(pid, addresses, out)
    }

    fn fork_shared(&mut self, pid: i32, address: u64) -> Result<u16, ScanError> {
        self.beside.fork_shared(pid, address)
    }

    fn clear(&mut self, process: &Process, address: u64, regions: usize) -> Option<Result<usize, Errno>> {
        let how = Ageing {
            clear: true,
            flush: true,
            young: self.damon,
            take: self.damon,
        };
        let end = address.saturating_add(regions as u64 * REGION_BYTES);
        let process = (process.pid(), process.shared_pidfd());
        Some(match self.age(&process, address..end, how, false) {
            Ok(()) => Ok(regions),
            Err(ModuleError::Call { errno, .. }) => Err(errno),
            Err(_) => Err(Errno::NODEV),
        })
    }
}
