use std::path::Path;

use super::*;

const MB: u64 = 1 << 20;

fn anonymous(start: u64, end: u64) -> Vma {
    Vma {
        start,
        end,
        flags: VmFlags::READ | VmFlags::WRITE,
        kind: MappingKind::Anonymous,
        name: None,
    }
}

fn with(flags: VmFlags) -> Vma {
    let mut vma = anonymous(2 * MB, 8 * MB);
    vma.flags |= flags;
    vma
}

fn of_line(line: &str) -> Vma {
    Vma::from(&maps::parse(Path::new("maps"), line.as_bytes()).unwrap()[0])
}

#[test]
fn only_whole_aligned_regions_count() {
    for (start, end, regions) in [
        (2 * MB, 4 * MB, Some(2 * MB..4 * MB)),
        (2 * MB + 4096, 4 * MB, None),
        (2 * MB, 4 * MB - 4096, None),
        (3 * MB, 7 * MB, Some(4 * MB..6 * MB)),
        (0, 4096, None),
        (u64::MAX - 4095, u64::MAX, None),
    ] {
        assert_eq!(anonymous(start, end).regions(), regions, "{start:x}-{end:x}");
    }
    assert_eq!(anonymous(3 * MB, 9 * MB).region_count(), 2);
    let vma = anonymous(3 * MB, 7 * MB);
    assert!(vma.holds(Region::at(4 * MB)) && !vma.holds(Region::at(2 * MB)) && !vma.holds(Region::at(6 * MB)));
}

#[test]
fn plain_anonymous_memory_has_no_obstacle() {
    assert_eq!(with(VmFlags::empty()).obstacle(), None);
    assert_eq!(with(VmFlags::DONTCOPY | VmFlags::HUGEPAGE).can(), Can::ALL);
}

#[test]
fn nohugepage_forbids_promotion_only() {
    let vma = with(VmFlags::NOHUGEPAGE);
    assert_eq!(vma.obstacle(), Some(Obstacle::NoHugePage));
    let can = vma.can();
    assert_eq!(
        (can.promote, can.demote, can.age, can.why),
        (false, true, true, Some(Why::NoHugePage))
    );
}

#[test]
fn locked_memory_can_be_promoted_only() {
    let can = with(VmFlags::LOCKED).can();
    assert_eq!(
        (can.promote, can.demote, can.age, can.why),
        (true, false, false, Some(Why::Mlocked))
    );
}

#[test]
fn locked_and_nohugepage_together_leave_nothing() {
    let vma = with(VmFlags::LOCKED | VmFlags::NOHUGEPAGE);
    assert!(!vma.is_manageable());
    assert_eq!(
        vma.obstacles().collect::<Vec<_>>(),
        [Obstacle::NoHugePage, Obstacle::Locked]
    );
}

#[test]
fn each_flag_that_excludes_a_mapping_is_named() {
    for (flag, obstacle) in [
        (VmFlags::HUGETLB, Obstacle::Hugetlb),
        (VmFlags::IO, Obstacle::Io),
        (VmFlags::PFNMAP, Obstacle::PfnMap),
        (VmFlags::MIXEDMAP, Obstacle::MixedMap),
        (VmFlags::GROWSDOWN, Obstacle::Stack),
        (VmFlags::DONTEXPAND, Obstacle::DontExpand),
    ] {
        assert_eq!(with(flag).obstacle(), Some(obstacle));
        assert!(!with(flag).is_manageable());
    }
}

#[test]
fn kinds_are_told_by_name_and_inode() {
    for (line, kind) in [
        ("200000-800000 rw-p 0 00:00 0", MappingKind::Anonymous),
        ("200000-800000 rw-p 0 00:00 0 [heap]", MappingKind::Anonymous),
        ("200000-800000 rw-p 0 00:00 0 [anon:/usr/lib]", MappingKind::Anonymous),
        ("200000-800000 r-xp 0 fe:00 12 /usr/bin/a b", MappingKind::File),
        ("200000-800000 rw-s 0 00:05 12 /dev/nvidia0", MappingKind::File),
        ("200000-800000 rw-s 0 00:01 12 /memfd:x (deleted)", MappingKind::Shmem),
        ("200000-800000 rw-s 0 00:01 12 /dev/zero (deleted)", MappingKind::Shmem),
        (
            "200000-800000 rw-s 0 00:01 12 /SYSV00000000 (deleted)",
            MappingKind::Shmem,
        ),
        ("200000-800000 r--p 0 00:00 0 [vvar_vclock]", MappingKind::Special),
        ("200000-800000 r-xp 0 00:00 0 [vdso]", MappingKind::Special),
    ] {
        assert_eq!(of_line(line).kind, kind, "{line}");
    }
}

#[test]
fn a_stack_is_known_by_its_name_where_flags_are_not() {
    assert_eq!(
        of_line("200000-800000 rw-p 0 00:00 0 [stack]").obstacle(),
        Some(Obstacle::Stack)
    );
    let hugetlb = of_line("200000-800000 rw-p 0 00:0f 9 /anon_hugepage (deleted)");
    assert_eq!(hugetlb.obstacle(), Some(Obstacle::Hugetlb));
}

#[test]
fn kernel_bits_and_letters_say_the_same() {
    let letters = VmFlags::from_smaps(" rd wr mr mw me gd ac lo nh zz");
    assert_eq!(VmFlags::from_kernel(0x4010_2173), letters);
    assert_eq!(VmFlags::from_kernel(u64::MAX) & VmFlags::UFFD_MINOR, VmFlags::empty());
}

#[test]
fn every_obstacle_leaves_what_it_says() {
    assert_eq!(
        Obstacle::File.permits(),
        Permits {
            promote: false,
            demote: false,
            age: false
        }
    );
    assert_eq!(Obstacle::Userfaultfd.why(), Why::Special);
    assert_eq!(Obstacle::Shmem.to_string(), "shared memory");
}
