//! Processors, as data, with the source of each figure.
//!
//! "Intel ORM" is the Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), chapter 2, the table of TLB parameters of the
//! microarchitecture; "AMD SOG" AMD's Software Optimization Guide for the family. Where no vendor publishes a figure, the source says so, and what it
//! was taken as. A figure marked † is quoted from memory of the source and could not be looked up at the time of writing.

use super::preset::{CacheLevel, Nested, Preset, Slot};
use super::store::Geometry;
use super::PageSize::{self, Base, Giant, Huge};

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// All of them.
pub const PRESETS: [Preset; 9] = [
    DEVELOPMENT,
    SAPPHIRE_RAPIDS,
    ICELAKE_SP,
    SKYLAKE_SP,
    BROADWELL_EP,
    HASWELL,
    ZEN2,
    ZEN3,
    ZEN4,
];

/// Other names that [`find`] knows: the papers' machines.
pub const ALIASES: [(&str, &str); 6] = [
    // MEGA, section 5: "Intel i7 @ 2,3GHz, 16GB DDR3 RAM"; the model is not said. Taken as a Haswell, the last i7 at 2.3 GHz with DDR3.
    ("mega", "haswell"),
    // MEGA, section 5.6: Xeon E5-2650 v4, 256 GB.
    ("mega-server", "broadwell-ep"),
    // LRBHPS, section 4: Ryzen 5 3600X, 16 GB.
    ("lrbhps", "zen2"),
    // Neither says which processor. Taken as a server of their time.
    ("study", "skylake-sp"),
    ("ingens", "broadwell-ep"),
    ("cascade-lake", "skylake-sp"),
];

/// The processor of this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, of)| of);
    static ALL: [Preset; 9] = PRESETS;
    ALL.iter().find(|preset| preset.name == name)
}

/// The processor described by a text: a name or alias, then figures to override, each after a colon: `zen4:host=2M:mhz=3700`.
///
/// | figure | |
/// | --- | --- |
/// | `mhz` | cycles per microsecond |
/// | `l3`, `memory` | cycles from load to use |
/// | `l3-mb` | one core's usable part of the L3 |
/// | `share` | share of each cache that lines of page tables win, in percent |
/// | `overlap` | share of a translation that independent accesses wait for, in percent |
/// | `host` | a virtual machine whose host maps with `4K`, `2M` or `1G`; `none`: no virtual machine |
/// | `scatter` | bits of address over which the guest's base pages are scattered in a virtual machine; 0: in order |
///
/// # Errors
/// The error in it, in one line.
pub fn named(text: &str) -> Result<Preset, String> {
    let (name, figures) = text.split_once(':').unwrap_or((text, ""));
    let known = || names().collect::<Vec<_>>().join(", ");
    let mut preset = *find(name).ok_or_else(|| format!("no TLB '{name}'; there are {}", known()))?;
    for figure in figures.split(':').filter(|figure| !figure.is_empty()) {
        let wrong = || {
            format!(
                "'{figure}' is no figure of a TLB: mhz=, l3=, memory=, l3-mb=, share=, overlap=, scatter= with a number, or host=4K|2M|1G|none"
            )
        };
        let (what, value) = figure.split_once('=').ok_or_else(wrong)?;
        let number = || value.trim_end_matches('%').parse::<u32>().map_err(|_| wrong());
        match what {
            "mhz" => preset.mhz = number()?,
            "l3" => preset.caches[2].cycles = number()?,
            "memory" => preset.memory_cycles = number()?,
            "l3-mb" => preset.caches[2].bytes = u64::from(number()?.min(1 << 16)) << 20,
            "share" => preset.share_percent = number()?,
            "overlap" => preset.overlap_percent = number()?,
            "host" => {
                let host = match value {
                    "none" => None,
                    "4K" => Some(Base),
                    "2M" => Some(Huge),
                    "1G" => Some(Giant),
                    _ => return Err(wrong()),
                };
                let other = preset.nested.unwrap_or(INTEL_NESTED);
                preset.nested = host.map(|host| Nested { host, ..other });
            }
            "scatter" => match preset.nested.as_mut() {
                Some(nested) => nested.scatter_bits = number()?,
                None => return Err(format!("'{figure}' applies to virtual machines only: set host= first")),
            },
            _ => return Err(wrong()),
        }
    }
    preset.check().map_err(|e| e.to_string())?;
    Ok(preset)
}

/// The preset of a processor by what CPUID says of it, as /proc/cpuinfo writes it.
#[must_use]
pub fn of_processor(vendor: &str, family: u32, model: u32) -> Option<&'static str> {
    match (vendor, family, model) {
        // Intel SDM vol. 4, table 2-1.
        ("GenuineIntel", 6, 0x8F | 0xCF) => Some("sapphire-rapids"),
        ("GenuineIntel", 6, 0x6A | 0x6C) => Some("icelake-sp"),
        ("GenuineIntel", 6, 0x55) => Some("skylake-sp"),
        ("GenuineIntel", 6, 0x4F | 0x56) => Some("broadwell-ep"),
        ("GenuineIntel", 6, 0x3C | 0x3F | 0x45 | 0x46) => Some("haswell"),
        // Linux, arch/x86/kernel/cpu/amd.c: which models of a family are which Zen.
        ("AuthenticAMD", 0x17, 0x30..) => Some("zen2"),
        ("AuthenticAMD", 0x19, 0x00..=0x0F | 0x20..=0x5F) => Some("zen3"),
        ("AuthenticAMD", 0x19, 0x10..=0x1F | 0x60..=0xAF) => Some("zen4"),
        _ => None,
    }
}

/// The names that [`find`] knows, aliases last.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS
        .map(|preset| preset.name)
        .into_iter()
        .chain(ALIASES.map(|(alias, _)| alias))
}

const fn all_in(base: u8, huge: u8, giant: u8) -> [Slot; 3] {
    [Slot::of(base, Base), Slot::of(huge, Huge), Slot::of(giant, Giant)]
}

const fn cache(bytes: u64, cycles: u32) -> CacheLevel {
    CacheLevel { bytes, cycles }
}

const NOT_PUBLISHED_WALK: &str =
    "not published by Intel (SDM vol. 3A, 4.10.3 names PDE, PDPTE and PML4 caches without sizes); taken as 32 \
    4-way, 4 and 4 entries, about the sizes that van Schaik et al. (RevAnC, 2017) reverse-engineered†";
const NOT_PUBLISHED_START: &str = "not published; taken as 5";
const SHARE: &str =
    "no property of the processor: half, as a random access brings one line of data and one of page table";
const AMD_WALK: &str = "AMD SOG family 17h (55723) and 19h (56665), 2.7.3: a page directory cache of 64 entries holds PML4Es and PDPEs, PDEs go to the L2 \
    DTLB (WikiChip's Zen 2 page has the same)";
const LRU: &str = "replacement is not published: true LRU";

/// Nested caches of Intel's. None of the sizes is published.
const INTEL_NESTED: Nested = Nested {
    host: PageSize::Huge,
    levels: 4,
    scatter_bits: 0,
    tlb: Some(Geometry::new(16, 16)),
    walk: [
        Some(Geometry::new(32, 4)),
        Some(Geometry::new(4, 4)),
        Some(Geometry::new(4, 4)),
        None,
    ],
};

const DEVELOPMENT: Preset = Preset {
    name: "development",
    about: "the development machine: a virtual machine on a Sapphire Rapids (AMX, 2 MB of L2, 105 MB of L3, family 6 model masked), 2 CPUs",
    mhz: 2600,
    caches: [cache(48 * KB, 5), cache(2 * MB, 16), cache(32 * MB, 270)],
    memory_cycles: 340,
    nested: Some(Nested {
        host: Base,
        ..INTEL_NESTED
    }),
    sources: &[
        ("mhz", "measured: 16 KB at random take 3.1 ns, 8 cycles; the time stamp counter runs at 2000"),
        ("stores", "as sapphire-rapids; the hypervisor hides CPUID leaves 2 and 18H"),
        ("l1", "as sapphire-rapids"),
        ("l2", "as sapphire-rapids"),
        ("walk", NOT_PUBLISHED_WALK),
        ("l2_cycles", "as sapphire-rapids"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "sizes: CPUID leaf 4, of the L3 what reach() shows one guest to keep; cycles: calibrate::reach on huge pages"),
        ("memory_cycles", "calibrate::reach on huge pages"),
        ("share_percent", SHARE),
        (
            "nested",
            "the hypervisor does not say what it maps with; taken as EPT with 4 KB, as huge pages take 120 ns more over 4 GB than over 32 MB, which an \
             L2 TLB of 1024 entries for 2 MB would not; the guest's base pages in order, which came nearer than scattered ones. Nested cache sizes are not published; \
             taken as the guest's",
        ),
    ],
    ..SAPPHIRE_RAPIDS
};

const SAPPHIRE_RAPIDS: Preset = Preset {
    name: "sapphire-rapids",
    about: "Intel Xeon Platinum 8480 (Golden Cove), 2023",
    mhz: 3800,
    levels: 4,
    stores: &[
        Geometry::new(96, 6),
        Geometry::new(32, 4),
        Geometry::new(8, 8),
        Geometry::new(2048, 16),
        Geometry::new(32, 4),
        Geometry::new(4, 4),
        Geometry::new(4, 4),
    ],
    l1: all_in(0, 1, 2),
    l2: SUNNY_COVE_L2,
    walk: [Some(4), Some(5), Some(6), Some(6)],
    l2_cycles: 7,
    walk_cycles: 5,
    caches: [cache(48 * KB, 5), cache(2 * MB, 16), cache(32 * MB, 125)],
    memory_cycles: 420,
    share_percent: 50,
    overlap_percent: 100,
    nested: None,
    sources: &[
        ("mhz", "largest turbo of the 8480 as tested by Chips and Cheese, \"A Peek at Sapphire Rapids\" (2023); 5 levels are possible"),
        ("stores", LRU),
        ("l1", "Intel ORM, Golden Cove: 96 entries 6-way for 4 KB loads (up from 64), 32 4-way for 2 MB, 8 for 1 GB†; the 16 for stores are left out"),
        ("l2", "Intel ORM, Golden Cove: 2048 entries 16-way for 4 KB, half of them for 2 MB and half for 1 GB†"),
        ("walk", NOT_PUBLISHED_WALK),
        ("l2_cycles", "perf's tma_dtlb_load metric of Ice Lake and later: 7 cycles per STLB hit†"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "Intel ORM, Golden Cove: L1D 48 KB 5 cycles, L2 2 MB 14 to 16†; L3 105 MB shared, 32 MB taken for one core, 33 ns as Chips and Cheese (2023)†"),
        ("memory_cycles", "taken as 110 ns"),
        ("share_percent", SHARE),
    ],
};

/// 4 KB in all 16 ways, 2 MB in the first eight, 1 GB in the others.
const SUNNY_COVE_L2: [Option<Slot>; 3] = [
    Some(Slot::of(3, Base)),
    Some(Slot::of(3, Huge).within(0x00FF)),
    Some(Slot::of(3, Giant).within(0xFF00)),
];

const ICELAKE_SP: Preset = Preset {
    name: "icelake-sp",
    about: "Intel Xeon Platinum 8380 (Sunny Cove), 2021",
    mhz: 3400,
    stores: &[
        Geometry::new(64, 4),
        Geometry::new(32, 4),
        Geometry::new(8, 8),
        Geometry::new(2048, 16),
        Geometry::new(32, 4),
        Geometry::new(4, 4),
        Geometry::new(4, 4),
    ],
    caches: [cache(48 * KB, 5), cache(1280 * KB, 14), cache(16 * MB, 75)],
    memory_cycles: 300,
    sources: &[
        ("mhz", "Intel ARK, largest turbo of the 8380†"),
        ("stores", LRU),
        ("l1", "Intel ORM, Ice Lake: loads 64 entries 4-way for 4 KB, 32 4-way for 2 MB, 8 for 1 GB†; the 16 for stores are left out"),
        ("l2", "Intel ORM, Ice Lake: 2048 entries 16-way for 4 KB, 1024 of them for 2 MB, 1024 for 1 GB†"),
        ("walk", NOT_PUBLISHED_WALK),
        ("l2_cycles", "perf's tma_dtlb_load metric of Ice Lake and later: 7 cycles per STLB hit†"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "L2 of Ice Lake-SP is 1.25 MB, 14 cycles (Intel ORM†); L3 60 MB shared, 16 MB taken for one core, 22 ns†"),
        ("memory_cycles", "taken as 88 ns"),
        ("share_percent", SHARE),
    ],
    ..SAPPHIRE_RAPIDS
};

const SKYLAKE_SP: Preset = Preset {
    name: "skylake-sp",
    about: "Intel Xeon Gold 6148 (Skylake-SP) or 6248 (Cascade Lake), 2017 and 2019",
    mhz: 3700,
    levels: 4,
    stores: &[
        Geometry::new(64, 4).plru(),
        Geometry::new(32, 4).plru(),
        Geometry::new(4, 4),
        Geometry::new(1536, 12).folded(),
        Geometry::new(16, 4),
        Geometry::new(32, 4),
        Geometry::new(4, 4),
        Geometry::new(4, 4),
    ],
    l1: all_in(0, 1, 2),
    l2: [Some(Slot::of(3, Base)), Some(Slot::of(3, Huge)), Some(Slot::of(4, Giant))],
    walk: [Some(5), Some(6), Some(7), Some(7)],
    l2_cycles: 9,
    walk_cycles: 5,
    caches: [cache(32 * KB, 4), cache(MB, 14), cache(16 * MB, 70)],
    memory_cycles: 330,
    share_percent: 50,
    overlap_percent: 100,
    nested: None,
    sources: &[
        ("mhz", "Intel ARK, largest turbo of the 6148†"),
        ("stores", "tree pseudo-LRU of the L1 and the folded index of the L2: Gras et al., TLBleed (USENIX Security 2018)†; others true LRU"),
        ("l1", "Intel ORM, Skylake (Table 2-15 of the edition of February 2022): 64 entries 4-way for 4 KB, 32 4-way for 2 MB, 4 for 1 GB"),
        ("l2", "the same: 1536 entries 12-way for 4 KB and 2 MB, 16 4-way for 1 GB"),
        ("walk", NOT_PUBLISHED_WALK),
        ("l2_cycles", "perf's tma_dtlb_load metric of Skylake: 9 cycles per STLB hit†"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "Intel ORM, Skylake server: L1D 32 KB 4 cycles, L2 1 MB 14, L3 1.375 MB per core 50 to 70; 16 MB taken for one core"),
        ("memory_cycles", "taken as 90 ns"),
        ("share_percent", SHARE),
    ],
};

const BROADWELL_EP: Preset = Preset {
    name: "broadwell-ep",
    about: "Intel Xeon E5-2650 v4 (Broadwell), 2016: MEGA's server with 256 GB",
    mhz: 2200,
    stores: &[
        Geometry::new(64, 4).plru(),
        Geometry::new(32, 4).plru(),
        Geometry::new(4, 4),
        Geometry::new(1536, 6).folded(),
        Geometry::new(16, 4),
        Geometry::new(32, 4),
        Geometry::new(4, 4),
        Geometry::new(4, 4),
    ],
    l2_cycles: 8,
    caches: [cache(32 * KB, 4), cache(256 * KB, 12), cache(16 * MB, 50)],
    memory_cycles: 190,
    sources: &[
        ("mhz", "MEGA, section 5.6"),
        ("stores", "as Skylake (TLBleed has a folded index of 8 bits for Broadwell's L2)†"),
        ("l1", "Intel ORM, Haswell and Broadwell: 64 entries 4-way for 4 KB, 32 4-way for 2 MB, 4 for 1 GB"),
        ("l2", "Intel ORM, Broadwell: 1536 entries 6-way for 4 KB and 2 MB, 16 4-way for 1 GB†"),
        ("walk", NOT_PUBLISHED_WALK),
        ("l2_cycles", "perf's tma_dtlb_load metric of Haswell and Broadwell: 8 cycles per STLB hit†"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "Intel ORM, Haswell: L1D 4 cycles, L2 256 KB 11 to 12; L3 30 MB shared, 16 MB taken for one core, taken as 50"),
        ("memory_cycles", "taken as 86 ns"),
        ("share_percent", SHARE),
    ],
    ..SKYLAKE_SP
};

const HASWELL: Preset = Preset {
    name: "haswell",
    about: "Intel i7 at 2.3 GHz (Haswell), 2013: taken for MEGA's laptop with 16 GB of DDR3",
    mhz: 2300,
    stores: &[
        Geometry::new(64, 4).plru(),
        Geometry::new(32, 4).plru(),
        Geometry::new(4, 4),
        Geometry::new(1024, 8).folded(),
        Geometry::new(32, 4),
        Geometry::new(4, 4),
        Geometry::new(4, 4),
    ],
    l2: [Some(Slot::of(3, Base)), Some(Slot::of(3, Huge)), None],
    walk: [Some(4), Some(5), Some(6), Some(6)],
    l2_cycles: 8,
    caches: [cache(32 * KB, 4), cache(256 * KB, 12), cache(6 * MB, 36)],
    memory_cycles: 175,
    sources: &[
        ("mhz", "MEGA, section 5; the model is not said"),
        ("stores", "as Skylake"),
        (
            "l1",
            "Intel ORM, Haswell: 64 entries 4-way for 4 KB, 32 4-way for 2 MB, 4 for 1 GB",
        ),
        (
            "l2",
            "Intel ORM, Haswell: 1024 entries 8-way for 4 KB and 2 MB, none for 1 GB†",
        ),
        ("walk", NOT_PUBLISHED_WALK),
        (
            "l2_cycles",
            "perf's tma_dtlb_load metric of Haswell: 8 cycles per STLB hit†",
        ),
        ("walk_cycles", NOT_PUBLISHED_START),
        (
            "caches",
            "Intel ORM, Haswell: L1D 4 cycles, L2 256 KB 11 to 12, L3 6 MB; its latency is taken as 36",
        ),
        ("memory_cycles", "taken as 76 ns"),
        ("share_percent", SHARE),
    ],
    ..SKYLAKE_SP
};

const ZEN2: Preset = Preset {
    name: "zen2",
    about: "AMD Ryzen 5 3600X (Zen 2), 2019: LRBHPS's machine with 16 GB of DDR4",
    mhz: 3800,
    levels: 4,
    stores: &[Geometry::new(64, 64), Geometry::new(2048, 16), Geometry::new(64, 64)],
    l1: all_in(0, 0, 0),
    l2: [
        Some(Slot::of(1, Base)),
        Some(Slot::of(1, Huge)),
        Some(Slot {
            covers: Huge,
            ..Slot::of(1, Giant)
        }),
    ],
    walk: [Some(1), Some(2), Some(2), Some(2)],
    l2_cycles: 7,
    walk_cycles: 5,
    caches: [cache(32 * KB, 4), cache(512 * KB, 12), cache(16 * MB, 39)],
    memory_cycles: 285,
    share_percent: 50,
    overlap_percent: 100,
    nested: None,
    sources: &[
        ("mhz", "base clock of the 3600X†"),
        ("stores", LRU),
        ("l1", "AMD SOG family 17h, 2.7.1 and WikiChip: 64 entries, fully associative, all page sizes"),
        ("l2", "WikiChip, Zen 2: 2048 entries, 4 KB and 2 MB, 1 GB smashed to 2 MB. It says 12-way, which 2048 does not divide into; taken as 16-way"),
        ("walk", AMD_WALK),
        ("l2_cycles", "Chips and Cheese, on Neoverse N1: Zen 2's L2 TLB takes 7 cycles"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "WikiChip, Zen 2: L1D 32 KB 4 cycles, L2 512 KB 12, L3 16 MB per four cores 39"),
        ("memory_cycles", "taken as 75 ns, DDR4-3200"),
        ("share_percent", SHARE),
    ],
};

const ZEN3: Preset = Preset {
    name: "zen3",
    about: "AMD Ryzen 7 5800X or EPYC 7003 (Zen 3), 2020",
    mhz: 3800,
    caches: [cache(32 * KB, 4), cache(512 * KB, 12), cache(32 * MB, 46)],
    sources: &[
        ("mhz", "base clock of the 5800X†"),
        ("stores", LRU),
        ("l1", "AMD SOG family 19h (56665), 2.7.1: 64 entries, fully associative, all page sizes†"),
        ("l2", "2048 entries (Chips and Cheese, on Cortex A510); ways as for zen2; that four consecutive pages may share an entry is left out"),
        ("walk", AMD_WALK),
        ("l2_cycles", "as zen2"),
        ("walk_cycles", NOT_PUBLISHED_START),
        ("caches", "AnandTech's review of Zen 3: L1D 32 KB 4 cycles, L2 512 KB 12, L3 32 MB per eight cores 46†"),
        ("memory_cycles", "taken as 75 ns, DDR4-3200"),
        ("share_percent", SHARE),
    ],
    ..ZEN2
};

const ZEN4: Preset = Preset {
    name: "zen4",
    about: "AMD Ryzen 7 7700X or EPYC 9004 (Zen 4), 2022",
    mhz: 4500,
    stores: &[Geometry::new(72, 72), Geometry::new(3072, 24), Geometry::new(64, 64)],
    caches: [cache(32 * KB, 4), cache(MB, 14), cache(32 * MB, 50)],
    memory_cycles: 340,
    sources: &[
        ("mhz", "base clock of the 7700X†"),
        ("stores", LRU),
        ("l1", "72 entries, fully associative (Chips and Cheese, on Neoverse N2)"),
        (
            "l2",
            "3072 entries (Chips and Cheese, on Neoverse N2), 24-way (AMD SOG for Zen 4, 57647)†",
        ),
        ("walk", AMD_WALK),
        ("l2_cycles", "as zen2"),
        ("walk_cycles", NOT_PUBLISHED_START),
        (
            "caches",
            "L1D 32 KB 4 cycles, L2 1 MB 14, L3 32 MB 50 (Chips and Cheese, \"AMD's Zen 4, Part 2\")†",
        ),
        ("memory_cycles", "taken as 75 ns, DDR5-5200"),
        ("share_percent", SHARE),
    ],
    ..ZEN2
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb::preset::FIGURES;

    #[test]
    fn every_preset_can_be_built_and_names_a_source_for_each_figure() {
        for preset in PRESETS {
            assert_eq!(preset.check(), Ok(()));
            let _ = crate::tlb::Tlb::new(&preset);
            for figure in FIGURES {
                assert!(
                    preset
                        .sources
                        .iter()
                        .any(|(name, source)| *name == figure && !source.is_empty()),
                    "{}: {figure}",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        for name in names() {
            assert!(find(name).is_some(), "{name}");
        }
        assert_eq!(names().count(), PRESETS.len() + ALIASES.len());
        assert_eq!(find("lrbhps").map(|preset| preset.name), Some("zen2"));
        assert_eq!(find("pentium"), None);
    }

    #[test]
    fn figures_that_are_others_here_follow_the_name() {
        let preset = named("zen4:host=2M:mhz=3700:l3=60:memory=410:l3-mb=8:share=40%:overlap=55%:scatter=34").unwrap();
        assert_eq!(
            (preset.mhz, preset.caches[2], preset.memory_cycles),
            (3700, cache(8 * MB, 60), 410)
        );
        assert_eq!((preset.share_percent, preset.overlap_percent), (40, 55));
        let nested = preset.nested.unwrap();
        assert_eq!((nested.host, nested.scatter_bits), (Huge, 34));
        assert_eq!(named("development:host=none").unwrap().nested, None);
        assert_eq!(named("mega").unwrap(), *find("haswell").unwrap());
        for bad in [
            "pentium",
            "zen4:host=3M",
            "zen4:mhz",
            "zen4:mhz=x",
            "zen4:mhz=0",
            "zen4:overlap=0",
            "zen4:scatter=34",
            "zen4:x=1",
        ] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors_are_known_by_family_and_model() {
        assert_eq!(of_processor("AuthenticAMD", 25, 17), Some("zen4"));
        assert_eq!(of_processor("AuthenticAMD", 25, 1), Some("zen3"));
        assert_eq!(of_processor("GenuineIntel", 6, 143), Some("sapphire-rapids"));
        assert_eq!(of_processor("GenuineIntel", 6, 1), None);
        for (vendor, family, model) in [
            ("AuthenticAMD", 23, 49),
            ("GenuineIntel", 6, 79),
            ("GenuineIntel", 6, 60),
        ] {
            assert!(of_processor(vendor, family, model).and_then(find).is_some());
        }
    }

    #[test]
    fn latencies_grow_with_distance() {
        for preset in PRESETS {
            let cycles = preset.caches.map(|cache| cache.cycles);
            assert!(cycles[0] < cycles[1] && cycles[1] < cycles[2] && cycles[2] < preset.memory_cycles);
            let bytes = preset.caches.map(|cache| cache.bytes);
            assert!(bytes[0] < bytes[1] && bytes[1] < bytes[2]);
        }
    }
}
