//! Mappings: which of them can be managed in regions of 2 MB, what can be done there, and why not.

use std::fmt;
use std::ops::Range;

use bitflags::bitflags;
use mega_core::observe::{Can, Region, Why};
use mega_core::units::HUGE_PAGE_BYTES;

use crate::proc::{maps, smaps};
use crate::scan::{RawVma, VmaKind};

bitflags! {
    /// Flags of a mapping. The low 32 bits are the kernel's own VM_* bits (include/linux/mm.h), the same from 6.1 to 6.18;
    /// those above are named by smaps only, since their bits move between kernels.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct VmFlags: u64 {
        /// `rd`
        const READ = 0x1;
        /// `wr`
        const WRITE = 0x2;
        /// `ex`
        const EXEC = 0x4;
        /// `sh`: MAP_SHARED.
        const SHARED = 0x8;
        /// `mr`
        const MAYREAD = 0x10;
        /// `mw`
        const MAYWRITE = 0x20;
        /// `me`
        const MAYEXEC = 0x40;
        /// `ms`
        const MAYSHARE = 0x80;
        /// `gd`: a stack.
        const GROWSDOWN = 0x100;
        /// `um`: userfaultfd serves its missing pages.
        const UFFD_MISSING = 0x200;
        /// `pf`: bare frame numbers, no pages.
        const PFNMAP = 0x400;
        /// `uw`: userfaultfd guards it against writing.
        const UFFD_WP = 0x1000;
        /// `lo`: mlock.
        const LOCKED = 0x2000;
        /// `io`: device memory.
        const IO = 0x4000;
        /// `sr`
        const SEQ_READ = 0x8000;
        /// `rr`
        const RAND_READ = 0x10000;
        /// `dc`: not for children of a fork.
        const DONTCOPY = 0x20000;
        /// `de`: must not grow; the kernel makes no huge pages there.
        const DONTEXPAND = 0x40000;
        /// `lf`
        const LOCKONFAULT = 0x80000;
        /// `ac`
        const ACCOUNT = 0x10_0000;
        /// `nr`
        const NORESERVE = 0x20_0000;
        /// `ht`
        const HUGETLB = 0x40_0000;
        /// `sf`
        const SYNC = 0x80_0000;
        /// `wf`
        const WIPEONFORK = 0x200_0000;
        /// `dd`
        const DONTDUMP = 0x400_0000;
        /// `sd`
        const SOFTDIRTY = 0x800_0000;
        /// `mm`: pages and bare frame numbers.
        const MIXEDMAP = 0x1000_0000;
        /// `hg`: madvise(MADV_HUGEPAGE).
        const HUGEPAGE = 0x2000_0000;
        /// `nh`: madvise(MADV_NOHUGEPAGE).
        const NOHUGEPAGE = 0x4000_0000;
        /// `mg`
        const MERGEABLE = 0x8000_0000;
        /// `ui`: userfaultfd serves its minor faults.
        const UFFD_MINOR = 1 << 56;
        /// `ss`: shadow stack.
        const SHADOW_STACK = 1 << 57;
        /// `dp`: may be dropped under pressure.
        const DROPPABLE = 1 << 58;
        /// `sl`: mseal.
        const SEALED = 1 << 59;
    }
}

impl VmFlags {
    /// The flags in the kernel's `vm_area_struct.vm_flags`. Bits from 32 up are left out.
    pub fn from_kernel(vm_flags: u64) -> Self {
        Self::from_bits_truncate(vm_flags & 0xffff_ffff)
    }

    /// The flags in a `VmFlags:` line of smaps, "rd wr mr mw me ac". Words that are not known are skipped.
    pub fn from_smaps(words: &str) -> Self {
        words.split_ascii_whitespace().filter_map(Self::named).collect()
    }

    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "rd" => Self::READ,
            "wr" => Self::WRITE,
            "ex" => Self::EXEC,
            "sh" => Self::SHARED,
            "mr" => Self::MAYREAD,
            "mw" => Self::MAYWRITE,
            "me" => Self::MAYEXEC,
            "ms" => Self::MAYSHARE,
            "gd" => Self::GROWSDOWN,
            "um" => Self::UFFD_MISSING,
            "pf" => Self::PFNMAP,
            "uw" => Self::UFFD_WP,
            "lo" => Self::LOCKED,
            "io" => Self::IO,
            "sr" => Self::SEQ_READ,
            "rr" => Self::RAND_READ,
            "dc" => Self::DONTCOPY,
            "de" => Self::DONTEXPAND,
            "lf" => Self::LOCKONFAULT,
            "ac" => Self::ACCOUNT,
            "nr" => Self::NORESERVE,
            "ht" => Self::HUGETLB,
            "sf" => Self::SYNC,
            "wf" => Self::WIPEONFORK,
            "dd" => Self::DONTDUMP,
            "sd" => Self::SOFTDIRTY,
            "mm" => Self::MIXEDMAP,
            "hg" => Self::HUGEPAGE,
            "nh" => Self::NOHUGEPAGE,
            "mg" => Self::MERGEABLE,
            "ui" => Self::UFFD_MINOR,
            "ss" => Self::SHADOW_STACK,
            "dp" => Self::DROPPABLE,
            "sl" => Self::SEALED,
            _ => return None,
        })
    }
}

/// What a mapping maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Memory of the process's own: heap, stacks, mmap(MAP_ANONYMOUS | MAP_PRIVATE).
    Anonymous,
    /// A file, private or shared.
    File,
    /// Shared memory: tmpfs, memfd, System V, mmap(MAP_ANONYMOUS | MAP_SHARED).
    Shmem,
    /// The kernel's own: vdso, vvar, vsyscall, uprobes.
    Special,
}

impl Kind {
    /// What a line of maps shows. A file on a tmpfs that is mounted elsewhere than at /dev/shm looks like any other file.
    fn of(mapping: &maps::Mapping) -> Self {
        let name = mapping.name.as_deref().unwrap_or("");
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if starts(&["[vdso", "[vvar", "[vsyscall]", "[uprobes]"]) {
            Self::Special
        } else if starts(&["/memfd:", "/dev/shm/", "/SYSV", "[anon_shmem:"]) || (name == "/dev/zero" && mapping.shared)
        {
            Self::Shmem
        } else if mapping.inode != 0 || name.starts_with('/') {
            Self::File
        } else {
            Self::Anonymous
        }
    }
}

/// What of managing is possible in a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    /// Base pages to a huge page (MADV_COLLAPSE).
    pub promote: bool,
    /// A huge page back to base pages (MADV_COLD on a part).
    pub demote: bool,
    /// Clearing accessed bits (MADV_COLD).
    pub age: bool,
}

/// Why a mapping cannot be managed, or not in every way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// `ht`: hugetlb memory is huge by itself.
    Hugetlb,
    /// `io`: device memory.
    Io,
    /// `pf`: bare frame numbers.
    PfnMap,
    /// `mm`: pages mixed with bare frame numbers.
    MixedMap,
    /// vdso, vvar, vsyscall and the like.
    Special,
    /// A file.
    File,
    /// Shared memory.
    Shmem,
    /// A stack.
    Stack,
    /// `de`: the kernel makes no huge pages where a mapping must not grow.
    DontExpand,
    /// No whole aligned region lies inside.
    TooSmall,
    /// `nh`: madvise(MADV_NOHUGEPAGE). Can be demoted and aged.
    NoHugePage,
    /// userfaultfd watches it: filling holes behind its back would be wrong. Can be demoted and aged.
    Userfaultfd,
    /// `lo`: mlock. Can be promoted only.
    Locked,
}

impl Obstacle {
    /// What remains possible.
    pub fn permits(self) -> Permits {
        let (promote, demote, age) = match self {
            Self::NoHugePage | Self::Userfaultfd => (false, true, true),
            Self::Locked => (true, false, false),
            _ => (false, false, false),
        };
        Permits { promote, demote, age }
    }

    /// The core's word for it.
    pub fn why(self) -> Why {
        match self {
            Self::Hugetlb => Why::Hugetlb,
            Self::Io | Self::PfnMap | Self::MixedMap | Self::Special | Self::DontExpand | Self::Userfaultfd => {
                Why::Special
            }
            Self::File => Why::File,
            Self::Shmem => Why::Shmem,
            Self::Stack => Why::Stack,
            Self::TooSmall => Why::Small,
            Self::NoHugePage => Why::NoHugePage,
            Self::Locked => Why::Mlocked,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hugetlb => "hugetlb memory is huge already",
            Self::Io => "device memory",
            Self::PfnMap => "bare frames without pages",
            Self::MixedMap => "bare frames among pages",
            Self::Special => "the kernel's own mapping",
            Self::File => "a file",
            Self::Shmem => "shared memory",
            Self::Stack => "a stack",
            Self::DontExpand => "a mapping that must not grow",
            Self::TooSmall => "no whole 2 MB region inside",
            Self::NoHugePage => "switched off by madvise(MADV_NOHUGEPAGE)",
            Self::Userfaultfd => "watched by userfaultfd",
            Self::Locked => "locked in memory (mlock)",
        })
    }
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// What is known of its flags: from maps only reading, writing, executing and sharing.
    pub flags: VmFlags,
    /// What it maps.
    pub kind: Kind,
    /// Path, or the kernel's name such as "\[heap\]".
    pub name: Option<String>,
}

impl Vma {
    /// Whole aligned regions inside, as a range of addresses; none when there is none. Regions that reach over into the
    /// neighbour do not count: the kernel makes no huge page across mappings.
    pub fn regions(&self) -> Option<Range<u64>> {
        let start = self.start.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let end = self.end - self.end % HUGE_PAGE_BYTES;
        (start < end).then_some(start..end)
    }

    /// How many whole aligned regions there are inside.
    pub fn region_count(&self) -> u64 {
        self.regions()
            .map_or(0, |range| (range.end - range.start) / HUGE_PAGE_BYTES)
    }

    /// This whole region lies inside.
    pub fn holds(&self, region: Region) -> bool {
        self.regions().is_some_and(|range| range.contains(&region.address()))
    }

    /// Everything that stands in the way, the most fundamental first.
    pub fn obstacles(&self) -> impl Iterator<Item = Obstacle> + '_ {
        let has = |flags| self.flags.intersects(flags);
        let stack = has(VmFlags::GROWSDOWN | VmFlags::SHADOW_STACK)
            || self.name.as_deref().is_some_and(|name| name.starts_with("[stack"));
        [
            (has(VmFlags::HUGETLB), Obstacle::Hugetlb),
            (self.kind == Kind::Special, Obstacle::Special),
            (has(VmFlags::IO), Obstacle::Io),
            (has(VmFlags::PFNMAP), Obstacle::PfnMap),
            (has(VmFlags::MIXEDMAP), Obstacle::MixedMap),
            (self.kind == Kind::File, Obstacle::File),
            (self.kind == Kind::Shmem, Obstacle::Shmem),
            (stack, Obstacle::Stack),
            (has(VmFlags::DONTEXPAND), Obstacle::DontExpand),
            (self.regions().is_none(), Obstacle::TooSmall),
            (has(VmFlags::NOHUGEPAGE), Obstacle::NoHugePage),
            (
                has(VmFlags::UFFD_MISSING | VmFlags::UFFD_WP | VmFlags::UFFD_MINOR),
                Obstacle::Userfaultfd,
            ),
            (has(VmFlags::LOCKED), Obstacle::Locked),
        ]
        .into_iter()
        .filter_map(|(there, obstacle)| there.then_some(obstacle))
    }

    /// The first thing that stands in the way; none when everything is possible.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacles().next()
    }

    /// What is possible with all obstacles taken together.
    pub fn permits(&self) -> Permits {
        let all = Permits {
            promote: true,
            demote: true,
            age: true,
        };
        self.obstacles().fold(all, |left, obstacle| {
            let permits = obstacle.permits();
            Permits {
                promote: left.promote && permits.promote,
                demote: left.demote && permits.demote,
                age: left.age && permits.age,
            }
        })
    }

    /// The same as the core wants to have it.
    pub fn can(&self) -> Can {
        let Permits { promote, demote, age } = self.permits();
        Can {
            promote,
            demote,
            age,
            why: self.obstacle().map(Obstacle::why),
        }
    }

    /// Something can be done with its regions.
    pub fn is_manageable(&self) -> bool {
        let Permits { promote, demote, age } = self.permits();
        promote || demote || age
    }
}

impl From<&maps::Mapping> for Vma {
    /// Of the flags, maps has four: what else stands in the way (locked, `nh`, `io`, hugetlb by its flag) stays unseen.
    fn from(mapping: &maps::Mapping) -> Self {
        let mut flags = VmFlags::empty();
        flags.set(VmFlags::READ, mapping.read);
        flags.set(VmFlags::WRITE, mapping.write);
        flags.set(VmFlags::EXEC, mapping.execute);
        flags.set(VmFlags::SHARED, mapping.shared);
        let hugetlb = mapping.deleted && mapping.name.as_deref() == Some("/anon_hugepage");
        flags.set(VmFlags::HUGETLB, hugetlb);
        Self {
            start: mapping.start,
            end: mapping.end,
            flags,
            kind: Kind::of(mapping),
            name: mapping.name.clone(),
        }
    }
}

impl From<&RawVma> for Vma {
    fn from(raw: &RawVma) -> Self {
        Self {
            start: raw.start,
            end: raw.end,
            flags: VmFlags::from_kernel(raw.vm_flags),
            kind: match raw.kind {
                VmaKind::Anonymous => Kind::Anonymous,
                VmaKind::File => Kind::File,
                VmaKind::Shmem => Kind::Shmem,
                VmaKind::Special => Kind::Special,
            },
            name: None,
        }
    }
}

impl From<&smaps::Entry> for Vma {
    fn from(entry: &smaps::Entry) -> Self {
        let mut vma = Self::from(&entry.mapping);
        vma.flags |= entry.flags.unwrap_or_default();
        vma
    }
}

#[cfg(test)]
mod tests;
