//! Flags of a mapping, as the kernel and smaps name them.

use bitflags::bitflags;

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
