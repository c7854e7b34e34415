//! What is to be done with a program's memory, and what came of it.

use crate::span::Span;

/// Something to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Advise the mapping: faults map huge pages.
    Advise {
        /// The whole mapping.
        mapping: Span,
        /// It was part of a larger one before.
        is_part: bool,
    },
    /// Withdraw the advice.
    Withdraw {
        /// The whole mapping.
        mapping: Span,
        /// It was part of a larger one before.
        is_part: bool,
    },
    /// Populate ahead of the program.
    Populate(Span),
    /// Collapse the region.
    Collapse(u64),
    /// Populate the region, and split its huge page at once: the kernel frees its zero-filled pages, and the program's
    /// own faults then map base pages there, which show how densely it fills memory.
    Probe(u64),
    /// Split the region's huge page, whose zero-filled pages the kernel then frees.
    GiveBack(u64),
    /// Split the huge page that the region's pages are a part of: the program has unmapped the rest of it, which the
    /// kernel else keeps until memory is short.
    Release(u64),
}

/// What came of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// There was no free block, or no memory.
    NoBlock,
    /// A control group's limit forbids it.
    Limit,
    /// Pages are pinned or locked: perhaps later.
    Busy,
    /// The kernel or the program forbids it for this mapping.
    Ineligible,
    /// The mapping is gone.
    Gone,
    /// The call is refused altogether.
    Refused,
}

/// Orders of one tick.
#[derive(Debug, Clone)]
pub struct Orders {
    list: [Order; ORDERS],
    len: usize,
}

/// The most orders of one tick.
pub const ORDERS: usize = 32;

impl Default for Orders {
    fn default() -> Self {
        Orders::new()
    }
}

impl Orders {
    /// No order.
    pub const fn new() -> Self {
        Orders {
            list: [Order::Advise {
                mapping: Span { start: 0, end: 0 },
                is_part: false,
            }; ORDERS],
            len: 0,
        }
    }

    /// The orders, first to last.
    pub fn list(&self) -> &[Order] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn push(&mut self, order: Order) -> bool {
        match self.list.get_mut(self.len) {
            Some(place) => {
                *place = order;
                self.len += 1;
                true
            }
            None => false,
        }
    }
}
