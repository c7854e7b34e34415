//! A message of the simulated network, and the order in which messages are due.

use crate::memory::content::{below, mix, word};
use crate::workload::WorkloadError;
use std::cmp::Ordering;

/// Minimum and maximum words of a message's data.
const DATA_WORDS: (u64, u64) = (4, 28);
/// Bytes of a frame besides its data.
const HEADER_BYTES: u64 = 26;

/// What happens to a message when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Its host sends it.
    Send,
    /// It arrives at a host or a switch.
    Arrive,
    /// A link is free again: a module's note to itself.
    Free,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub time_ns: u64,
    /// Order among messages due at the same time.
    pub order: u64,
    pub what: Event,
    pub is_reply: bool,
    /// The module at which it happens.
    pub at: usize,
    pub port: usize,
    pub from: usize,
    pub to: usize,
    /// The seed of its data.
    pub content: u64,
    pub data: Box<[u64]>,
}

/// A message ordered by due time, the earliest being the greatest.
#[derive(Debug)]
pub(super) struct Due(pub Box<Message>);

impl Due {
    fn key(&self) -> (u64, u64) {
        (self.0.time_ns, self.0.order)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl Message {
    /// Fills it with data derived from `content`.
    pub fn fill(&mut self, content: u64) {
        let (least, most) = DATA_WORDS;
        let words = least + below(mix(content), most - least + 1);
        self.content = content;
        self.data = (0..words).map(|i| word(content, i)).collect();
    }

    /// Checks that its data is what it was filled with.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let is_right = |(i, found): (usize, &u64)| *found == word(self.content, i as u64);
        if self.data.iter().enumerate().all(is_right) {
            return Ok(());
        }
        let at = self.data.as_ptr() as usize;
        Err(WorkloadError::corrupt(
            "events",
            format_args!("the data at {at:#x} of a message from {} to {}", self.from, self.to),
        ))
    }

    /// Its size on a link.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES + 8 * self.data.len() as u64
    }
}
