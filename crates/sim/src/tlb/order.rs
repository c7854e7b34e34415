//! The order of use of a set's ways in one integer: a field per place, the way used last in the lowest.
//!
//! Fields are 4 bits wide (up to 16 ways) or 5 (up to 24). A use moves the way's field to the front and the fields before it up by one. Nothing
//! here branches or shifts by a number of places, so a use takes the same dozen instructions wherever the way was.
//! Tree pseudo-LRU keeps its tree in the low bits of the same integer.

/// An order of up to 16 or 24 ways.
pub trait Order: Copy + std::fmt::Debug {
    /// Ways 0, 1, 2, … in this order.
    fn identity(ways: u32) -> Self;
    /// The way at a place of the order.
    fn at(self, place: u32) -> u32;
    /// The order after `way` was used.
    fn touch(self, way: u32) -> Self;
    /// The order with `way` as the next to go.
    fn drop_to_end(self, way: u32, ways: u32) -> Self;
    /// Its low 32 bits, which pseudo-LRU uses as its tree.
    fn tree(self) -> u32;
    /// A tree as an order.
    fn from_tree(tree: u32) -> Self;
}

/// The highest bit of the field that holds `way`: of the lowest field of `order ^ (way in every field)` that is zero. The usual borrow trick marks that
/// one exactly, and wrongly only fields above it.
macro_rules! mark_of {
    ($order:expr, $way:expr, $int:ty, $bits:literal) => {{
        let ones: $int = ones!($int, $bits);
        let x = $order ^ (ones * <$int>::from($way));
        x.wrapping_sub(ones) & !x & (ones << ($bits - 1))
    }};
}

/// A one in every whole field.
macro_rules! ones {
    ($int:ty, $bits:literal) => {{
        const ONES: $int = {
            let mut ones: $int = 0;
            let mut at = 0;
            while at + $bits <= <$int>::BITS {
                ones |= 1 << at;
                at += $bits;
            }
            ones
        };
        ONES
    }};
}

macro_rules! order {
    ($int:ty, $bits:literal) => {
        impl Order for $int {
            fn identity(ways: u32) -> Self {
                let mut order = <$int>::MAX;
                for way in (0..ways).rev() {
                    order = (order << $bits) | <$int>::from(way);
                }
                order
            }

            #[inline]
            fn at(self, place: u32) -> u32 {
                ((self >> (place * $bits)) & ((1 << $bits) - 1)) as u32
            }

            #[inline]
            fn touch(self, way: u32) -> Self {
                let mark = mark_of!(self, way, $int, $bits);
                // The way's field and all below it.
                let upto = mark ^ mark.wrapping_sub(1);
                (self & !upto) | ((self << $bits) & upto) | <$int>::from(way)
            }

            fn drop_to_end(self, way: u32, ways: u32) -> Self {
                let field: $int = (1 << $bits) - 1;
                let at = mark_of!(self, way, $int, $bits).trailing_zeros() - ($bits - 1);
                let end = (ways - 1) * $bits;
                if at == end {
                    return self;
                }
                let below = ((1 as $int) << at) - 1;
                let moved = (((1 as $int) << end) - 1) & !below;
                let beyond = !(below | moved | (field << end));
                (self & beyond) | (self & below) | ((self >> $bits) & moved) | (<$int>::from(way) << end)
            }

            #[inline]
            fn tree(self) -> u32 {
                self as u32
            }

            #[inline]
            fn from_tree(tree: u32) -> Self {
                <$int>::from(tree)
            }
        }
    };
}

order!(u64, 4);
order!(u128, 5);

/// The tree after `way` was used: each node on its path points to the other half. Node 1 is the root, the children of n are 2n and 2n+1; a set bit
/// points to the upper half.
#[inline]
pub(super) fn touch_tree(mut tree: u32, way: u32, ways: u32) -> u32 {
    let mut node = 1;
    let mut half = ways >> 1;
    while half != 0 {
        let upper = u32::from(way & half != 0);
        tree = (tree & !(1 << node)) | ((1 - upper) << node);
        node = node * 2 + upper;
        half >>= 1;
    }
    tree
}

/// The way that the tree points to.
#[inline]
pub(super) fn tree_victim(tree: u32, ways: u32) -> u32 {
    let mut node = 1;
    while node < ways {
        node = node * 2 + (tree >> node & 1);
    }
    node - ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The order as a list, most recent first.
    fn list(order: impl Order, ways: u32) -> Vec<u32> {
        (0..ways).map(|place| order.at(place)).collect()
    }

    fn check<O: Order>(ways: u32, uses: &[(u32, bool)]) {
        let mut order = O::identity(ways);
        let mut naive: Vec<u32> = (0..ways).collect();
        for &(way, drop) in uses {
            let way = way % ways;
            naive.retain(|w| *w != way);
            if drop {
                naive.push(way);
                order = order.drop_to_end(way, ways);
            } else {
                naive.insert(0, way);
                order = order.touch(way);
            }
            assert_eq!(list(order, ways), naive);
        }
    }

    proptest! {
        #[test]
        fn an_order_is_that_of_a_list(ways in 1u32..=24, uses in prop::collection::vec((0u32..24, prop::bool::weighted(0.2)), 1..100)) {
            if ways <= 16 {
                check::<u64>(ways, &uses);
            }
            check::<u128>(ways, &uses);
        }
    }
}
