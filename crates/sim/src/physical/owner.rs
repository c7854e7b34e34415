//! An owner in 64 bits: 4 bits of kind, 16 of the address space, 36 of the page, the region or the key.

use std::num::NonZeroU16;

use mega_core::observe::Region;

use crate::unit::{Owner, Page, SpaceId};

const KIND_SHIFT: u32 = 60;
const SPACE_SHIFT: u32 = 36;
const NUMBER: u64 = (1 << SPACE_SHIFT) - 1;

/// The kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerKind {
    Kernel,
    Cache,
    Reserved,
    Anonymous,
    Shared,
    Ballast,
}

impl OwnerKind {
    /// It can be moved, and with it the frame.
    pub fn moves(self) -> bool {
        !matches!(self, Self::Kernel | Self::Reserved)
    }
}

impl From<Owner> for OwnerKind {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Kernel => Self::Kernel,
            Owner::Cache => Self::Cache,
            Owner::Reserved(..) => Self::Reserved,
            Owner::Anonymous(..) => Self::Anonymous,
            Owner::Shared(_) => Self::Shared,
            Owner::Ballast => Self::Ballast,
        }
    }
}

/// The word of an owner. Numbers above 36 bits lose their upper bits: addresses have 47.
pub(super) fn pack(owner: Owner) -> u64 {
    let word = |kind: u64, space: u16, number: u64| {
        debug_assert!(number <= NUMBER, "{number:#x} is no page of a 47-bit address");
        kind << KIND_SHIFT | u64::from(space) << SPACE_SHIFT | number & NUMBER
    };
    match owner {
        Owner::Kernel => word(0, 0, 0),
        Owner::Cache => word(1, 0, 0),
        Owner::Reserved(space, region) => word(2, space.0.get(), region.0),
        Owner::Anonymous(space, page) => word(3, space.0.get(), page.0),
        Owner::Shared(key) => word(4, 0, key.into()),
        Owner::Ballast => word(5, 0, 0),
    }
}

/// The kind in a word.
pub(super) fn kind(word: u64) -> OwnerKind {
    match word >> KIND_SHIFT {
        1 => OwnerKind::Cache,
        2 => OwnerKind::Reserved,
        3 => OwnerKind::Anonymous,
        4 => OwnerKind::Shared,
        5 => OwnerKind::Ballast,
        _ => OwnerKind::Kernel,
    }
}

/// The owner of the `nth` frame of a run whose first frame has this word.
pub(super) fn unpack(word: u64, nth: u32) -> Owner {
    let number = word & NUMBER;
    let space = || NonZeroU16::new((word >> SPACE_SHIFT) as u16).map(SpaceId);
    match kind(word) {
        OwnerKind::Cache => Owner::Cache,
        OwnerKind::Shared => Owner::Shared(number as u32),
        OwnerKind::Ballast => Owner::Ballast,
        OwnerKind::Reserved => space().map_or(Owner::Kernel, |space| Owner::Reserved(space, Region(number))),
        OwnerKind::Anonymous => space().map_or(Owner::Kernel, |s| Owner::Anonymous(s, Page(number + u64::from(nth)))),
        OwnerKind::Kernel => Owner::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owners() -> impl Strategy<Value = Owner> {
        let space = (1..=u16::MAX).prop_map(|n| SpaceId(NonZeroU16::new(n).unwrap()));
        prop_oneof![
            Just(Owner::Kernel),
            Just(Owner::Cache),
            Just(Owner::Ballast),
            any::<u32>().prop_map(Owner::Shared),
            (space.clone(), 0..1u64 << 26).prop_map(|(s, r)| Owner::Reserved(s, Region(r))),
            (space, 0..1u64 << 35).prop_map(|(s, p)| Owner::Anonymous(s, Page(p))),
        ]
    }

    proptest! {
        #[test]
        fn an_owner_comes_back_out_of_its_word(owner in owners(), nth in 0u32..512) {
            prop_assert_eq!(unpack(pack(owner), 0), owner);
            prop_assert_eq!(kind(pack(owner)), OwnerKind::from(owner));
            if let Owner::Anonymous(space, page) = owner {
                let expected = Owner::Anonymous(space, Page(page.0 + u64::from(nth)));
                prop_assert_eq!(unpack(pack(owner), nth), expected);
            } else {
                prop_assert_eq!(unpack(pack(owner), nth), owner);
            }
        }
    }
}
