//! Unmodified Linux (Documentation/admin-guide/mm/transhuge.rst; mm/huge_memory.c).
//!
//! - `enabled`: where the first fault in a region that the mapping covers tries for a huge page: `always`; `madvise`, only where the
//!   mapping has MADV_HUGEPAGE; or `never`. MADV_NOHUGEPAGE forbids it.
//! - `defrag`: how hard it tries (`vma_thp_gfp_mask`). `always` uses direct compaction, thorough only where the mapping is advised; `defer` wakes
//!   kcompactd; `defer+madvise` uses direct compaction where the mapping is advised and wakes kcompactd elsewhere; `madvise` uses direct
//!   compaction where advised and takes what is free elsewhere; `never` takes what is free. After a failed compaction the next 2^n attempts,
//!   n up to 6, are deferred; that is up to compaction.
//! - khugepaged scans `pages_to_scan` = 4096 base pages per `scan_sleep` = 10 s and collapses regions in which at most `max_ptes_none` = 511
//!   of 512 base pages are missing.
//! - A partially unmapped huge page has its mapping split; its memory stays whole on the deferred split queue until there is pressure.
//! - 6.12: under pressure, huge pages with more than `max_ptes_none` zero-filled base pages are split; none has while that is 511.

use std::time::Duration;

use crate::fault::{Background, Chore, Effort, Fault, FaultPolicy, HugeAdvice, Place, Rest, Unmapped};
use crate::policy::params::{hand_on_parameters, parameters, Count, ParamValue};
use crate::units::{Share, UnitError};

/// `transparent_hugepage/enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enabled {
    /// For all mappings.
    Always,
    /// For mappings with MADV_HUGEPAGE.
    Madvise,
    /// Never.
    Never,
}

impl ParamValue for Enabled {
    fn read(text: &str) -> Result<Self, UnitError> {
        match text {
            "always" => Ok(Self::Always),
            "madvise" => Ok(Self::Madvise),
            "never" => Ok(Self::Never),
            _ => Err(UnitError::new(text, "'always', 'madvise' or 'never'")),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
        .to_string()
    }
}

/// `transparent_hugepage/defrag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defrag {
    /// Direct compaction.
    Always,
    /// Wake kcompactd.
    Defer,
    /// Direct compaction where advised; wake kcompactd elsewhere.
    DeferMadvise,
    /// Direct compaction where advised; elsewhere only what is free.
    Madvise,
    /// Only what is free.
    Never,
}

impl ParamValue for Defrag {
    fn read(text: &str) -> Result<Self, UnitError> {
        match text {
            "always" => Ok(Self::Always),
            "defer" => Ok(Self::Defer),
            "defer+madvise" => Ok(Self::DeferMadvise),
            "madvise" => Ok(Self::Madvise),
            "never" => Ok(Self::Never),
            _ => {
                let expected = "'always', 'defer', 'defer+madvise', 'madvise' or 'never'";
                Err(UnitError::new(text, expected))
            }
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Always => "always",
            Self::Defer => "defer",
            Self::DeferMadvise => "defer+madvise",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
        .to_string()
    }
}

parameters! {
    /// The kernel's settings with its defaults.
    pub struct LinuxFaultParams for "linux" {
        enabled: Enabled = Enabled::Always, "where a first fault gets a huge page: always, madvise, never";
        defrag: Defrag = Defrag::Madvise, "how hard a fault tries for a free block: always, defer, defer+madvise, madvise, never";
        khugepaged: bool = true, "whether khugepaged runs";
        pages_to_scan: Count<1, 100_000_000> = Count(4096), "base pages that khugepaged scans per pass";
        scan_sleep: Duration = Duration::from_secs(10), "time between its passes";
        huge_after_load: bool = false, "a store to a region so far only loaded from gets a huge page too (before Linux 5.8 and again by 6.18)";
        max_ptes_none: Count<0, 511> = Count(511), "maximum of missing base pages in a region that khugepaged collapses";
        shrink_underused: bool = true, "split huge pages with more zero-filled pages than max_ptes_none under pressure (6.12)";
        pressure_under: Share = Share::percent(5), "available memory below which there is pressure";
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct LinuxFault {
    /// Its parameters.
    pub params: LinuxFaultParams,
}

impl FaultPolicy for LinuxFault {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        let advised = fault.advice == HugeAdvice::Huge;
        let allowed = match self.params.enabled {
            Enabled::Always => fault.advice != HugeAdvice::NoHuge,
            Enabled::Madvise => advised,
            Enabled::Never => false,
        };
        // A load gets the huge zero page, whose first store falls back to base pages (5.8 to 6.12 at least): as if base pages had been mapped at once.
        let loaded = fault.loaded && !self.params.huge_after_load;
        if allowed && fault.fits && !fault.write && !fault.loaded && self.params.huge_after_load {
            return Place::ZeroHuge;
        }
        if !allowed || !fault.fits || !fault.write || loaded {
            return Place::Base;
        }
        Place::Huge(match (self.params.defrag, advised) {
            // Without MADV_HUGEPAGE, __GFP_NORETRY stops after asynchronous compaction.
            (Defrag::Always, false) => Effort::Direct,
            (Defrag::Always | Defrag::DeferMadvise | Defrag::Madvise, true) => Effort::Hard,
            (Defrag::Defer, _) | (Defrag::DeferMadvise, false) => Effort::Wake,
            (Defrag::Madvise, false) | (Defrag::Never, _) => Effort::Free,
        })
    }

    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Deferred
    }

    fn period(&self) -> Option<Duration> {
        Some(self.params.scan_sleep)
    }

    fn background(&mut self, seen: &Background<'_>) -> Vec<Chore> {
        let mut chores = Vec::new();
        let max_none = self.params.max_ptes_none.0;
        if self.params.khugepaged && self.params.enabled != Enabled::Never {
            chores.push(Chore::Khugepaged {
                pages: self.params.pages_to_scan.0,
                max_none,
            });
        }
        let machine = &seen.machine;
        let short = !self
            .params
            .pressure_under
            .reached_by(machine.available_bytes.0, machine.total_bytes.0);
        if short && self.params.shrink_underused && max_none < 511 {
            chores.push(Chore::SplitUnderused { max_zero: max_none });
        }
        chores
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::{background, fault};

    fn place(set: &[(&str, &str)], fault: Fault) -> Place {
        let mut policy = LinuxFault::default();
        for (name, value) in set {
            policy.set(name, value).unwrap();
        }
        policy.place(&fault)
    }

    #[test]
    fn enabled_says_where_and_defrag_how_hard() {
        let advised = Fault {
            advice: HugeAdvice::Huge,
            ..fault()
        };
        let forbidden = Fault {
            advice: HugeAdvice::NoHuge,
            ..fault()
        };
        assert_eq!(place(&[], fault()), Place::Huge(Effort::Free));
        assert_eq!(place(&[], advised), Place::Huge(Effort::Hard));
        assert_eq!(place(&[], forbidden), Place::Base);
        assert_eq!(place(&[("enabled", "madvise")], fault()), Place::Base);
        assert_eq!(place(&[("enabled", "never")], advised), Place::Base);
        assert_eq!(place(&[("defrag", "always")], fault()), Place::Huge(Effort::Direct));
        assert_eq!(place(&[("defrag", "defer")], advised), Place::Huge(Effort::Wake));
        assert_eq!(
            place(&[("defrag", "defer+madvise")], advised),
            Place::Huge(Effort::Hard)
        );
        assert_eq!(
            place(&[("defrag", "defer+madvise")], fault()),
            Place::Huge(Effort::Wake)
        );
        assert_eq!(place(&[("defrag", "never")], advised), Place::Huge(Effort::Free));
    }

    #[test]
    fn a_region_that_the_mapping_does_not_cover_gets_base_pages() {
        assert_eq!(place(&[], Fault { fits: false, ..fault() }), Place::Base);
    }

    #[test]
    fn after_a_load_there_are_base_pages_but_for_old_kernels() {
        let loaded = Fault {
            loaded: true,
            ..fault()
        };
        assert_eq!(place(&[], loaded), Place::Base);
        assert_eq!(place(&[("huge_after_load", "on")], loaded), Place::Huge(Effort::Free));
    }

    #[test]
    fn the_shrinker_does_nothing_while_every_page_may_be_missing() {
        let mut policy = LinuxFault::default();
        policy.set("pressure_under", "100%").unwrap();
        assert_eq!(background(&mut policy, 10, &[]).len(), 1, "khugepaged alone");
        policy.set("max_ptes_none", "100").unwrap();
        assert_eq!(
            background(&mut policy, 20, &[])[1],
            Chore::SplitUnderused { max_zero: 100 }
        );
    }
}
