//! Mappings: which of them can be managed in regions of 2 MB, what can be done there, and why not.

use std::fmt;
use std::ops::Range;

use mega_core::observe::{Can, Region, Why};
use mega_core::units::HUGE_PAGE_BYTES;

use crate::proc::vm_flags::VmFlags;
use crate::proc::{maps, smaps};
use crate::scan::{RawVma, VmaKind};

/// What a mapping maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// Memory of the process's own: heap, stacks, mmap(MAP_ANONYMOUS | MAP_PRIVATE).
    Anonymous,
    /// A file, private or shared.
    File,
    /// Shared memory: tmpfs, memfd, System V, mmap(MAP_ANONYMOUS | MAP_SHARED).
    Shmem,
    /// The kernel's own: vdso, vvar, vsyscall, uprobes.
    Special,
}

impl MappingKind {
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
    pub kind: MappingKind,
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
            (self.kind == MappingKind::Special, Obstacle::Special),
            (has(VmFlags::IO), Obstacle::Io),
            (has(VmFlags::PFNMAP), Obstacle::PfnMap),
            (has(VmFlags::MIXEDMAP), Obstacle::MixedMap),
            (self.kind == MappingKind::File, Obstacle::File),
            (self.kind == MappingKind::Shmem, Obstacle::Shmem),
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
            kind: MappingKind::of(mapping),
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
                VmaKind::Anonymous => MappingKind::Anonymous,
                VmaKind::File => MappingKind::File,
                VmaKind::Shmem => MappingKind::Shmem,
                VmaKind::Special => MappingKind::Special,
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
