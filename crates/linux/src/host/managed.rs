//! One managed process, and what its page tables say in the core's terms.

use std::collections::BTreeMap;

use mega_core::ageing::accessed_bits::AccessedBits;
use mega_core::observe::{Can, Observation, Region};
use mega_core::units::{BasePages, HUGE_PAGE_BYTES};

use super::contents::KnownContents;
use super::quiet::Quiet;
use crate::knobs::Claim;
use crate::process::Process;
use crate::scan::{RegionFlags, RegionScan};
use crate::vma::Vma;

/// One managed process.
pub struct Managed {
    pub process: Process,
    /// Held for as long as the process is managed.
    pub _claim: Option<Claim>,
    pub vmas: Vec<Vma>,
    pub thp_disabled: bool,
    pub aged: AccessedBits,
    pub contents: KnownContents,
    /// What is unmapped and kept, by the last reading; and whether that was read since the memory last changed.
    pub kept: BTreeMap<Region, BasePages>,
    pub is_kept_known: bool,
    pub quiet: Quiet,
}

impl Managed {
    fn vma_of(&self, region: Region) -> Option<&Vma> {
        let i = self.vmas.partition_point(|vma| vma.end <= region.address());
        let vma = self.vmas.get(i)?;
        (vma.start <= region.address() && vma.end - region.address() >= HUGE_PAGE_BYTES).then_some(vma)
    }

    pub fn observation(&self, scan: &RegionScan, sees_accessed: bool, dry_run: bool) -> Option<Observation> {
        let region = Region::at(scan.address);
        let vma = self.vma_of(region)?;
        let huge = scan.flags.contains(RegionFlags::HUGE);
        // The shared zero page counts as accessed for ever: MADV_COLD passes it over.
        let accessed = if huge {
            scan.accessed
        } else {
            scan.accessed.saturating_sub(scan.zero)
        };
        let zero = if huge {
            self.contents.zero(region)
        } else {
            Some(BasePages(scan.zero.into()))
        };
        Some(Observation {
            region,
            mapped: BasePages(scan.mapped.into()),
            accessed: BasePages(accessed.into()),
            dirty: BasePages(scan.dirty.into()),
            zero,
            kept: self.kept.get(&region).copied().unwrap_or_default(),
            huge,
            shared: scan.flags.contains(RegionFlags::SHARED),
            raced: scan.flags.contains(RegionFlags::RACED),
            aged: sees_accessed && (dry_run || self.aged.is_aged(region)),
            can: can(vma, self.thp_disabled),
        })
    }
}

/// What can be done with the regions of a mapping.
fn can(vma: &Vma, thp_disabled: bool) -> Can {
    let mut can = vma.can();
    if thp_disabled {
        can.promote = false;
        can.why = can.why.or(Some(mega_core::observe::Why::Prctl));
    }
    can
}
