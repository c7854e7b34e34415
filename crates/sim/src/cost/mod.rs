//! What each operation costs, in nanoseconds, and the source of the figure.
//!
//! The default is the development machine: a virtual machine with 2 CPUs and Linux 6.18. "docs/linux.md" has what was measured there;
//! "calibrate" is `mega sim calibrate` (crates/lab/src/calibrate), run there on the day that [`Costs::date`] gives. [`preset`] has the papers'
//! machines, with the figures that the papers give. All values are whole nanoseconds of one CPU, on memory that the host already backs.
//!
//! A fault is [`fault_entry_ns`](Costs::fault_entry_ns) plus what it does: plus [`zero_base_ns`](Costs::zero_base_ns) for a base page,
//! plus [`zero_huge_ns`](Costs::zero_huge_ns) for a huge one, plus [`copy_base_ns`](Costs::copy_base_ns) for a copy on write. A
//! collapse is [`collapse_overhead_ns`](Costs::collapse_overhead_ns) plus [`collapse_page_ns`](Costs::collapse_page_ns) for each base page
//! that is mapped.

mod machines;

pub use machines::{names, preset};

use serde::{Deserialize, Serialize};

/// The longest cost accepted: 10 s.
const MOST_NS: u64 = 10_000_000_000;

/// Why costs are inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// Not the JSON of costs.
    #[error("costs: {0}")]
    Json(String),
    /// A cost is zero that involves memory or the kernel.
    #[error("costs: {field} is 0")]
    Zero {
        /// Which.
        field: &'static str,
    },
    /// More than ten seconds.
    #[error("costs: {field} is {value}, more than 10 s")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its value in nanoseconds.
        value: u64,
    },
    /// An operation takes less than one that it contains.
    #[error("costs: {less} is {less_value}, less than {more} with {more_value}")]
    Order {
        /// The field that should be the larger one.
        less: &'static str,
        /// Its value in nanoseconds.
        less_value: u64,
        /// The field that should be the smaller one.
        more: &'static str,
        /// Its value in nanoseconds.
        more_value: u64,
    },
}

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident = $default:literal;)+) => {
        /// All costs of a machine, in nanoseconds.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Costs {
            /// The machine that was measured.
            pub machine: String,
            /// Its kernel.
            pub kernel: String,
            /// When.
            pub date: String,
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Default for Costs {
            /// The development machine.
            fn default() -> Self {
                Self {
                    machine: "development: 2 CPUs of a Xeon (Sapphire Rapids), 24 GB, virtual".into(),
                    kernel: "6.18".into(),
                    date: machines::DATE.into(),
                    $($name: $default,)+
                }
            }
        }

        impl Costs {
            /// Names and values of all costs, in the order of their definition.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            /// Names of all costs and the source of the default's figure, in the order of their definition.
            #[must_use]
            pub fn sources() -> Vec<(&'static str, &'static str)> {
                vec![$((stringify!($name), concat!($($doc),+).trim_start()),)+]
            }

            /// Of several measurements of one machine, the first one's description with the median of each cost (the lower one of an even number). None
            /// for an empty list.
            #[must_use]
            pub fn median(of: &[Self]) -> Option<Self> {
                Some(Self {
                    $($name: median(of.iter().map(|costs| costs.$name))?,)+
                    ..of.first()?.clone()
                })
            }

            fn check_each(&self) -> Result<(), CostError> {
                $(check_one(stringify!($name), self.$name, CostBound::$kind)?;)+
                Ok(())
            }
        }
    };
}

/// The median; the lower one of an even number.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Whether a cost may be zero.
#[derive(PartialEq, Eq)]
enum CostBound {
    /// No.
    Positive,
    /// Yes: it is then not charged.
    Optional,
}

fn check_one(field: &'static str, value: u64, kind: CostBound) -> Result<(), CostError> {
    if value == 0 && kind == CostBound::Positive {
        return Err(CostError::Zero { field });
    }
    if value > MOST_NS {
        return Err(CostError::TooLong { field, value });
    }
    Ok(())
}

costs! {
    // Faults.
    /// A page fault without what it does with the page: into the kernel, VMA, page table, page from the free lists, back. docs/linux.md: base fault about 1.3 µs, less zeroing.
    fault_entry_ns: Positive = 1_120;
    /// Zeroing 4 KB in a fault. docs/linux.md: huge fault 88–100 µs warm, so 93 µs of zeroing, a 512th.
    zero_base_ns: Positive = 182;
    /// Zeroing 2 MB page by page, in a huge fault. docs/linux.md: huge fault 88–100 µs warm.
    zero_huge_ns: Positive = 93_000;
    /// Zeroing 2 MB in one go (bulk, clzero). LRBHPS table 1: system time 0.1896 s against 0.2184 s, so 87 % of zero_huge_ns; not measured here.
    zero_huge_bulk_ns: Positive = 80_700;
    /// Copying 4 KB in a copy-on-write fault. calibrate: 2.63 µs for such a fault on a private mapping of a file in memory, less 1.19 for its entry.
    copy_base_ns: Positive = 1_440;
    /// Mapping the shared zero page in a read fault, beyond fault_entry_ns. Not measured; taken as zero.
    zero_page_ns: Optional = 0;
    /// Taking a 2 MB block from the free list when there is one. The allocation-latency study: mean 2.7 µs after compaction.
    allocate_block_ns: Positive = 2_700;
    /// Extra for a 2 MB block that the host does not back yet. docs/linux.md: 4.5 ms against 0.1 ms per 2 MB. Only charged by a machine that models a cold host.
    cold_block_ns: Optional = 4_400_000;

    // Promotion and demotion.
    /// A collapse of a region, without its pages. docs/linux.md: 125 µs with 10 pages present.
    collapse_overhead_ns: Positive = 119_000;
    /// Isolating and copying one mapped base page in a collapse. docs/linux.md: 430 µs with 512 present, less 125 µs with 10, by 502.
    collapse_page_ns: Positive = 608;
    /// Mapping an already populated block huge in place (reservations): page table, shootdown excluded. Not measured; taken as a fault's entry.
    remap_huge_ns: Positive = 1_120;
    /// Splitting a huge page by a partial MADV_COLD, the search for zero-filled pages included. docs/linux.md: 320–390 µs.
    split_ns: Positive = 355_000;
    /// Splitting only the mapping of a huge page (a fork's copy on write, a partial unmap). Not measured; taken as 512 entries written.
    split_mapping_ns: Positive = 2_000;
    /// Checking whether one base page is all zeroes: reading all of it. Not measured; taken as a quarter of copying it.
    check_zero_ns: Positive = 75;

    // Shootdowns, system calls.
    /// Flushing another CPU's TLB: an interrupt there and the wait for it. calibrate: giving back one page 2.86 µs with another CPU in the process, 0.64 without.
    shootdown_ns: Positive = 2_215;
    /// Into the kernel and back. calibrate.
    syscall_ns: Positive = 110;
    /// mmap and munmap of an empty area, the pair. calibrate.
    mmap_ns: Positive = 1_460;
    /// Giving back one base page by munmap or MADV_DONTNEED. calibrate.
    unmap_page_ns: Positive = 153;
    /// Giving back one huge page. calibrate.
    unmap_huge_ns: Positive = 3_660;
    /// Copying one base page's entry in fork. Not measured; taken as giving back.
    fork_page_ns: Positive = 153;
    /// Copying one huge page's entry in fork. Not measured; taken as eight entries and a page table.
    fork_huge_ns: Positive = 1_000;

    // Observation.
    /// Scanning the page table of one base-mapped region. docs/linux.md: eBPF walk 0.41 ms per GB.
    scan_region_base_ns: Positive = 800;
    /// Scanning one huge-mapped region. docs/linux.md: 0.02 ms per GB.
    scan_region_huge_ns: Positive = 39;
    /// Clearing the accessed bit of one base page by MADV_COLD. docs/linux.md: 14–17 ms per GB.
    clear_page_ns: Positive = 59;
    /// Touching a page again whose accessed bit was cleared: the flushed translation, and the bit set in the table. calibrate: 0.44–0.67 µs; 0.60 over 2 GB at random.
    set_accessed_ns: Optional = 600;
    /// The manager's own estimate of set_accessed_ns: it measures 4 MB of its own, whose page tables are cached. calibrate, the same way.
    set_accessed_believed_ns: Optional = 600;
    /// Clearing that of one huge page. docs/linux.md: 0.06–0.1 ms per GB.
    clear_huge_ns: Positive = 156;
    /// madvise on one base page that changes its state (MADV_FREE, MADV_PAGEOUT), without what follows. Taken as clear_page_ns.
    madvise_page_ns: Positive = 59;

    // Compaction.
    /// Scanning one page frame in compaction, by either scanner. Not measured; a page descriptor read that misses half the time.
    compact_scan_ns: Positive = 20;
    /// Migrating one base page in compaction: isolate, unmap, copy, map. docs/linux.md: compact_memory 2 s for 21 GB with every 4th page kept, so about 1.03 M pages.
    migrate_page_ns: Positive = 1_840;

    // Swap. None on the development machine.
    /// Writing one page to swap, as the reclaiming task sees it (asynchronous). Not measured; taken as 10 µs.
    swap_out_ns: Positive = 10_000;
    /// Reading one page back from swap in a fault. Not measured; taken as 100 µs, a SATA SSD of MEGA's time.
    swap_in_ns: Positive = 100_000;

    // Memory.
    /// A load that hits the second-level cache. calibrate: 512 KB at random.
    memory_hit_ns: Positive = 8;
    /// A load from memory that the next one waits for, on huge pages. docs/linux.md: dependent loads over 2 GB, 175 ns on 1 GB pages, 180 under THP.
    memory_miss_ns: Positive = 175;
    /// A load from memory among many independent ones, on huge pages. docs/linux.md: GUPS over 2 GB under THP 12.2 ns.
    memory_overlapped_ns: Positive = 12;
}

impl Costs {
    /// Reads what [`Costs::to_json`] wrote, and checks it.
    ///
    /// # Errors
    ///
    /// Invalid JSON (line, column, field), or an inconsistent value.
    pub fn from_json(text: &str) -> Result<Self, CostError> {
        let costs: Self = serde_json::from_str(text).map_err(|error| CostError::Json(error.to_string()))?;
        costs.check()?;
        Ok(costs)
    }

    /// As JSON, a field per line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings and integers only: it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Checks the values: none that must not be is zero, none is over 10 s, and no part takes longer than its whole.
    ///
    /// # Errors
    ///
    /// The first field that does not.
    pub fn check(&self) -> Result<(), CostError> {
        self.check_each()?;
        let at_least = |less: &'static str, less_value: u64, more: &'static str, more_value: u64| {
            if less_value < more_value {
                return Err(CostError::Order {
                    less,
                    less_value,
                    more,
                    more_value,
                });
            }
            Ok(())
        };
        at_least("zero_huge_ns", self.zero_huge_ns, "zero_base_ns", self.zero_base_ns)?;
        at_least(
            "zero_huge_ns",
            self.zero_huge_ns,
            "zero_huge_bulk_ns",
            self.zero_huge_bulk_ns,
        )?;
        at_least(
            "memory_miss_ns",
            self.memory_miss_ns,
            "memory_hit_ns",
            self.memory_hit_ns,
        )?;
        at_least(
            "memory_miss_ns",
            self.memory_miss_ns,
            "memory_overlapped_ns",
            self.memory_overlapped_ns,
        )?;
        at_least("split_ns", self.split_ns, "split_mapping_ns", self.split_mapping_ns)?;
        at_least(
            "scan_region_base_ns",
            self.scan_region_base_ns,
            "scan_region_huge_ns",
            self.scan_region_huge_ns,
        )
    }

    /// A fault that maps a zeroed base page.
    #[must_use]
    pub const fn base_fault_ns(&self) -> u64 {
        self.fault_entry_ns + self.zero_base_ns
    }

    /// A fault that maps a zeroed huge page, a block being free.
    #[must_use]
    pub const fn huge_fault_ns(&self) -> u64 {
        self.fault_entry_ns + self.zero_huge_ns
    }

    /// A collapse of a region with so many base pages mapped, a free block being available. The rest is zeroed.
    #[must_use]
    pub const fn collapse_ns(&self, mapped: u32) -> u64 {
        self.collapse_overhead_ns + self.collapse_page_ns * mapped as u64
    }

    /// Sets fault entry and zeroing from two measured faults, by their difference. Nothing changes unless a huge fault takes longer than a base fault.
    pub fn set_faults(&mut self, base_ns: u64, huge_ns: u64) {
        // huge = entry + 512 zero, base = entry + zero.
        if huge_ns > base_ns {
            self.zero_base_ns = ((huge_ns - base_ns) / 511).max(1);
            self.fault_entry_ns = base_ns.saturating_sub(self.zero_base_ns).max(1);
            self.zero_huge_ns = huge_ns - self.fault_entry_ns;
            self.zero_huge_bulk_ns = self.zero_huge_ns * 1896 / 2184;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_makes_sense_and_says_what_was_measured() {
        let costs = Costs::default();
        assert_eq!(costs.check(), Ok(()));
        // docs/linux.md: base fault about 1.3 µs, huge 88 to 100, collapse 430 with 512 pages and 125 with 10.
        assert!((1_250..1_350).contains(&costs.base_fault_ns()));
        assert!((88_000..100_000).contains(&costs.huge_fault_ns()));
        assert!((425_000..435_000).contains(&costs.collapse_ns(512)));
        assert!((124_000..126_000).contains(&costs.collapse_ns(10)));
    }

    #[test]
    fn costs_read_back_what_they_wrote() {
        for name in names() {
            let costs = preset(name).unwrap();
            assert_eq!(Costs::from_json(&costs.to_json()), Ok(costs));
        }
    }

    #[test]
    fn each_cost_of_several_is_the_median_and_makes_sense_if_each_does() {
        let with = |entry, zero| Costs {
            fault_entry_ns: entry,
            zero_base_ns: zero,
            ..Costs::default()
        };
        let of = [with(300, 70), with(100, 90), with(200, 80)];
        let median = Costs::median(&of).unwrap();
        assert_eq!((median.fault_entry_ns, median.zero_base_ns), (200, 80));
        assert_eq!(median, with(200, 80), "and all else is as it was");
        assert_eq!(Costs::median(&of[..2]).unwrap().fault_entry_ns, 100);
        assert_eq!(Costs::median(&[]), None);
    }

    #[test]
    fn a_wrong_value_is_named() {
        let mut costs = Costs {
            split_ns: 0,
            ..Costs::default()
        };
        assert_eq!(costs.check().unwrap_err().to_string(), "costs: split_ns is 0");
        costs.split_ns = u64::MAX;
        assert!(costs
            .check()
            .unwrap_err()
            .to_string()
            .contains("split_ns is 18446744073709551615"));
        let costs = Costs {
            memory_hit_ns: 500,
            ..Costs::default()
        };
        assert!(costs
            .check()
            .unwrap_err()
            .to_string()
            .contains("memory_miss_ns is 175, less than memory_hit_ns"));
    }

    #[test]
    fn a_missing_an_unknown_and_a_negative_field_are_named() {
        let json = Costs::default().to_json();
        let missing = json.replace("\"split_ns\"", "\"spilt_ns\"");
        assert!(Costs::from_json(&missing).unwrap_err().to_string().contains("spilt_ns"));
        let gone = json.replace(
            "  \"machine\": \"development: 2 CPUs of a Xeon (Sapphire Rapids), 24 GB, virtual\",\n",
            "",
        );
        assert!(Costs::from_json(&gone)
            .unwrap_err()
            .to_string()
            .contains("missing field `machine`"));
        let negative = json.replace("\"split_ns\": ", "\"split_ns\": -");
        assert!(Costs::from_json(&negative).unwrap_err().to_string().contains("line"));
        assert!(Costs::from_json("").is_err());
    }

    #[test]
    fn every_cost_is_listed_once() {
        let values = Costs::default().values();
        let json: serde_json::Value = serde_json::from_str(&Costs::default().to_json()).unwrap();
        assert_eq!(values.len() + 3, json.as_object().unwrap().len());
        for (name, value) in values {
            assert_eq!(json[name], value, "{name}");
        }
    }

    proptest! {
        #[test]
        fn faults_are_what_was_measured(base in 200u64..5_000, more in 10_000u64..1_000_000) {
            let mut costs = Costs::default();
            costs.set_faults(base, base + more);
            prop_assert!(costs.base_fault_ns().abs_diff(base) <= 2 || costs.fault_entry_ns == 1);
            prop_assert!(costs.huge_fault_ns() == base + more);
            prop_assert!(costs.check().is_ok());
        }

        #[test]
        fn no_text_makes_reading_panic(text in ".{0,200}") {
            let _ = Costs::from_json(&text);
        }
    }
}
