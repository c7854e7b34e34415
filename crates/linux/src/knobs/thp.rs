//! The settings of transparent huge pages under /sys/kernel/mm/transparent_hugepage, and who decides about those of one
//! process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use mega_core::units::HUGE_PAGE_BYTES;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::proc::vm_flags::VmFlags;
use crate::proc::{read_bounded, smaps, status, ProcRoot, SMALL_BYTES};
use crate::vma::{MappingKind, Vma};

/// `enabled`: where faults and khugepaged may make huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Everywhere.
    Always,
    /// Where madvise(MADV_HUGEPAGE) asks for it.
    Madvise,
    /// Nowhere. MADV_COLLAPSE makes them all the same.
    Never,
    /// As the global `enabled` says: only for a size of its own (6.8).
    Inherit,
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(word: &str) -> std::result::Result<Self, ()> {
        Ok(match word {
            "always" => Self::Always,
            "madvise" => Self::Madvise,
            "never" => Self::Never,
            "inherit" => Self::Inherit,
            _ => return Err(()),
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
            Self::Inherit => "inherit",
        })
    }
}

/// khugepaged's settings and counters; each absent where the kernel lacks it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Khugepaged {
    /// It defragments when it allocates.
    pub defrag: Option<bool>,
    /// Empty base pages that it fills when it makes a huge page; 511: it makes one of a single base page.
    pub max_ptes_none: Option<u64>,
    /// Shared base pages that it accepts in a huge page.
    pub max_ptes_shared: Option<u64>,
    /// Swapped base pages that it reads back for a huge page.
    pub max_ptes_swap: Option<u64>,
    /// Base pages that it looks at per round.
    pub pages_to_scan: Option<u64>,
    /// Its pause between rounds, in milliseconds.
    pub scan_sleep_ms: Option<u64>,
    /// Its pause after it got no huge page, in milliseconds.
    pub alloc_sleep_ms: Option<u64>,
    /// Huge pages that it has made since boot.
    pub pages_collapsed: Option<u64>,
    /// Times that it has been through everything since boot.
    pub full_scans: Option<u64>,
}

/// /sys/kernel/mm/transparent_hugepage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thp {
    /// `enabled`.
    pub enabled: Mode,
    /// `defrag`: "always", "defer", "defer+madvise", "madvise" or "never".
    pub defrag: Option<String>,
    /// `shmem_enabled`: "always", "within_size", "advise", "never", "deny" or "force".
    pub shmem_enabled: Option<String>,
    /// `use_zero_page`: reading a hole maps the huge zero page.
    pub use_zero_page: Option<bool>,
    /// `shrink_underused` (6.13): under pressure the kernel splits huge pages that are mostly zeroes, if there are more
    /// zero pages in one than max_ptes_none.
    pub shrink_underused: Option<bool>,
    /// `hpage_pmd_size`: size of a huge page in bytes.
    pub huge_page_bytes: Option<u64>,
    /// `khugepaged/`.
    pub khugepaged: Khugepaged,
    /// `hugepages-*kB/enabled` by size in bytes (6.8); empty where there is one size only.
    pub sizes: BTreeMap<u64, Mode>,
}

impl Thp {
    /// What holds at faults for huge pages of 2 MB, all settings considered.
    pub fn huge_page_mode(&self) -> Mode {
        match self.sizes.get(&self.huge_page_bytes.unwrap_or(HUGE_PAGE_BYTES)) {
            None | Some(Mode::Inherit) => self.enabled,
            Some(own) => *own,
        }
    }
}

/// The settings now; none when the kernel has no transparent huge pages.
///
/// # Errors
/// A setting cannot be read, or says something unknown.
pub fn read(root: &ProcRoot) -> Result<Option<Thp>> {
    let Some(enabled) = mode(&root.thp("enabled"))? else {
        return Ok(None);
    };
    let khugepaged = |name: &str| number(&root.thp("khugepaged").join(name));
    Ok(Some(Thp {
        enabled,
        defrag: choice(&root.thp("defrag"))?,
        shmem_enabled: choice(&root.thp("shmem_enabled"))?,
        use_zero_page: flag(&root.thp("use_zero_page"))?,
        shrink_underused: flag(&root.thp("shrink_underused"))?,
        huge_page_bytes: number(&root.thp("hpage_pmd_size"))?,
        khugepaged: Khugepaged {
            defrag: flag(&root.thp("khugepaged/defrag"))?,
            max_ptes_none: khugepaged("max_ptes_none")?,
            max_ptes_shared: khugepaged("max_ptes_shared")?,
            max_ptes_swap: khugepaged("max_ptes_swap")?,
            pages_to_scan: khugepaged("pages_to_scan")?,
            scan_sleep_ms: khugepaged("scan_sleep_millisecs")?,
            alloc_sleep_ms: khugepaged("alloc_sleep_millisecs")?,
            pages_collapsed: khugepaged("pages_collapsed")?,
            full_scans: khugepaged("full_scans")?,
        },
        sizes: sizes(root)?,
    }))
}

/// The sizes that have settings of their own, in bytes, with their mode.
///
/// # Errors
/// The folder cannot be listed, or a setting cannot be read.
pub fn sizes(root: &ProcRoot) -> Result<BTreeMap<u64, Mode>> {
    let folder = root.thp("");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(|e| Error::io(&folder, "list", e))? {
        let name = entry.map_err(|e| Error::io(&folder, "list", e))?.file_name();
        let Some(size) = name.to_str().and_then(size_of_name) else {
            continue;
        };
        // A size for shared memory only has no `enabled`.
        if let Some(mode) = mode(&folder.join(&name).join("enabled"))? {
            found.insert(size, mode);
        }
    }
    Ok(found)
}

/// The folder of a size's own settings.
pub fn size_folder(size_bytes: u64) -> String {
    format!("hugepages-{}kB", size_bytes / 1024)
}

fn size_of_name(name: &str) -> Option<u64> {
    let kb: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kb.checked_mul(1024)
}

/// The chosen word of a file such as "always [madvise] never"; without brackets, all that it says.
pub(crate) fn chosen(text: &str) -> &str {
    let mut words = text.split_ascii_whitespace();
    words
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text.trim())
}

/// A small file's text; none if it is not there.
fn text(path: &Path) -> Result<Option<String>> {
    match read_bounded(path, SMALL_BYTES) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

fn choice(path: &Path) -> Result<Option<String>> {
    Ok(text(path)?.map(|text| chosen(&text).to_owned()))
}

fn parsed<T>(path: &Path, expected: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(word) = choice(path)? else { return Ok(None) };
    let field = path.file_name().unwrap_or_default().to_string_lossy();
    match parse(&word) {
        Some(value) => Ok(Some(value)),
        None => Err(Error::format(path, 1, &field, expected, &word)),
    }
}

fn mode(path: &Path) -> Result<Option<Mode>> {
    parsed(path, "always, madvise, never or inherit", |word| word.parse().ok())
}

fn number(path: &Path) -> Result<Option<u64>> {
    parsed(path, "a number", |word| word.parse().ok())
}

fn flag(path: &Path) -> Result<Option<bool>> {
    parsed(path, "0 or 1", |word| match word {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

/// Who decides about the huge pages of a process, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "owner")]
pub enum Owner {
    /// The kernel has no transparent huge pages.
    NoThp,
    /// prctl(PR_SET_THP_DISABLE): no huge pages at all, whoever asks.
    Process,
    /// madvise(MADV_NOHUGEPAGE) in these mappings.
    SwitchedOff {
        /// How many.
        mappings: u64,
        /// Their regions of 2 MB together, in bytes.
        bytes: u64,
    },
    /// madvise(MADV_HUGEPAGE) in these mappings.
    AskedFor {
        /// How many.
        mappings: u64,
        /// Their regions of 2 MB together, in bytes.
        bytes: u64,
    },
    /// The rest is as the machine's settings have it.
    Machine {
        /// What holds for huge pages of 2 MB.
        mode: Mode,
        /// It is the size's own setting that says so, and not the global one.
        own_size: bool,
    },
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThp => f.write_str("this kernel has no transparent huge pages"),
            Self::Process => f.write_str(
                "disabled for the process by prctl(PR_SET_THP_DISABLE), which it or a parent called: nobody can promote",
            ),
            Self::SwitchedOff { mappings, bytes } => write!(
                f,
                "switched off by madvise(MADV_NOHUGEPAGE) in {mappings} mappings, {} MB: no promotion there",
                bytes >> 20
            ),
            Self::AskedFor { mappings, bytes } => write!(
                f,
                "asked for by madvise(MADV_HUGEPAGE) in {mappings} mappings, {} MB",
                bytes >> 20
            ),
            Self::Machine { mode, own_size } => {
                let who = if *own_size { "for 2 MB pages" } else { "global" };
                let means = match mode {
                    Mode::Always => "faults and khugepaged make huge pages everywhere",
                    Mode::Madvise => "faults and khugepaged make huge pages only where asked for; we can promote the rest",
                    Mode::Never | Mode::Inherit => "faults and khugepaged make none; we can promote",
                };
                write!(f, "{who}: {mode}: {means}")
            }
        }
    }
}

/// Who decides about the huge pages of a process: the process itself first, then its mappings, then the machine. Only
/// anonymous mappings with room for a huge page count.
///
/// # Errors
/// As [`read`], or the process is gone or not ours to look at.
pub fn owners(root: &ProcRoot, pid: u32) -> Result<Vec<Owner>> {
    let Some(thp) = read(root)? else {
        return Ok(vec![Owner::NoThp]);
    };
    let mut owners = Vec::new();
    if status::read(root, pid)?.thp_enabled == Some(false) {
        owners.push(Owner::Process);
    }
    let vmas: Vec<Vma> = smaps::read(root, pid)?.iter().map(Vma::from).collect();
    let of = |flag: VmFlags| {
        let with = vmas
            .iter()
            .filter(|vma| vma.kind == MappingKind::Anonymous && vma.flags.contains(flag) && vma.region_count() > 0);
        with.fold((0u64, 0u64), |(mappings, bytes), vma| {
            (
                mappings + 1,
                bytes.saturating_add(vma.region_count().saturating_mul(HUGE_PAGE_BYTES)),
            )
        })
    };
    let (mappings, bytes) = of(VmFlags::NOHUGEPAGE);
    if mappings > 0 {
        owners.push(Owner::SwitchedOff { mappings, bytes });
    }
    let (mappings, bytes) = of(VmFlags::HUGEPAGE);
    if mappings > 0 {
        owners.push(Owner::AskedFor { mappings, bytes });
    }
    let own = thp.sizes.get(&thp.huge_page_bytes.unwrap_or(HUGE_PAGE_BYTES));
    owners.push(Owner::Machine {
        mode: thp.huge_page_mode(),
        own_size: own.is_some_and(|own| *own != Mode::Inherit),
    });
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_chosen_one() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("[always] madvise never"), "always");
        assert_eq!(chosen(" 511\n"), "511");
        assert_eq!(chosen("a [b"), "a [b");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn folders_are_named_by_kilobytes() {
        assert_eq!(size_folder(64 << 10), "hugepages-64kB");
        assert_eq!(size_of_name("hugepages-2048kB"), Some(HUGE_PAGE_BYTES));
        assert_eq!(size_of_name("hugepages-18446744073709551615kB"), None);
        assert_eq!(size_of_name("khugepaged"), None);
    }

    #[test]
    fn owners_say_what_it_means() {
        let machine = Owner::Machine {
            mode: Mode::Never,
            own_size: false,
        };
        assert_eq!(
            machine.to_string(),
            "global: never: faults and khugepaged make none; we can promote"
        );
    }
}
