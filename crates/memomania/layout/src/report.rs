//! What a process with pools says of itself: what is counted, and the line of JSON that it is written as, without an allocation.

use std::fmt::{self, Write};

use crate::map::Usage;
use crate::page::{Kind, BASE};
use crate::request::Reason;

/// The names of the pools, in this order wherever there are several.
pub const POOLS: [&str; 3] = ["heap", "brk", "anon"];

const REASONS: usize = Reason::ALL.len();
/// Different events.
pub const EVENTS: usize = REASONS + 6;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A mapping came from the anonymous pool.
    Served,
    /// A mapping was left to the kernel.
    Fall(Reason),
    /// No 2 MB page of hugetlb was to be had.
    ShortHuge,
    /// No 1 GB page of hugetlb was to be had.
    ShortGigantic,
    /// A hugetlb page was replaced by base pages.
    Demotion,
    /// It could not be.
    DemotionFailed,
    /// A fork, for which hugetlb pages were copied.
    ForkCopy,
}

impl Event {
    /// Of this kind there were not enough pages.
    pub const fn short(kind: Kind) -> Self {
        match kind {
            Kind::Gigantic => Self::ShortGigantic,
            _ => Self::ShortHuge,
        }
    }

    /// Its place among the counters, below [`EVENTS`].
    pub const fn index(self) -> usize {
        match self {
            Self::Fall(reason) => reason as usize,
            Self::Served => REASONS,
            Self::ShortHuge => REASONS + 1,
            Self::ShortGigantic => REASONS + 2,
            Self::Demotion => REASONS + 3,
            Self::DemotionFailed => REASONS + 4,
            Self::ForkCopy => REASONS + 5,
        }
    }
}

/// A pool as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pool {
    /// Address space.
    pub reserved_bytes: usize,
    /// What is in use of it.
    pub usage: Usage,
}

/// A process as it is now. Displayed as one line of JSON, without a line feed.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// The process.
    pub pid: u32,
    /// Its name. What is not printable ASCII is shown as `?`.
    pub name: &'a [u8],
    /// Those that are there, in the order of [`POOLS`].
    pub pools: [Option<Pool>; 3],
    /// How often each event was, by [`Event::index`].
    pub counts: [usize; EVENTS],
}

impl fmt::Display for Process<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |event: Event| self.counts[event.index()];
        write!(
            f,
            "{{\"schema\":1,\"kind\":\"memomania\",\"pid\":{},\"comm\":\"",
            self.pid
        )?;
        for byte in self.name {
            match byte {
                b'\n' => {}
                b'"' | b'\\' => write!(f, "\\{}", *byte as char)?,
                b' '..=b'~' => f.write_char(*byte as char)?,
                _ => f.write_char('?')?,
            }
        }
        f.write_str("\",\"pools\":{")?;
        let pools = POOLS.iter().zip(&self.pools);
        let pools = pools.filter_map(|(name, pool)| Some((name, pool.as_ref()?)));
        for (index, (name, pool)) in pools.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let reserved = pool.reserved_bytes;
            write!(f, "{comma}\"{name}\":{{\"reserved_bytes\":{reserved},\"pages\":{{")?;
            let usage = &pool.usage;
            let mut comma = "";
            for kind in Kind::ALL {
                let of = |pages: [usize; 4]| pages[kind as usize].saturating_mul(BASE);
                if usage.peak[kind as usize] == 0 {
                    continue;
                }
                let (used, peak) = (of(usage.used), of(usage.peak));
                write!(f, "{comma}\"{kind}\":{{\"used_bytes\":{used},\"peak_bytes\":{peak}")?;
                if kind.is_hugetlb() {
                    let (taken, peak) = (of(usage.live), of(usage.live_peak));
                    write!(f, ",\"taken_bytes\":{taken},\"taken_peak_bytes\":{peak}")?;
                }
                f.write_char('}')?;
                comma = ",";
            }
            f.write_str("}}")?;
        }
        write!(f, "}},\"served\":{},\"left_to_the_kernel\":{{", get(Event::Served))?;
        for reason in Reason::ALL {
            let comma = if reason as usize == 0 { "" } else { "," };
            write!(f, "{comma}\"{}\":{}", reason.word(), get(Event::Fall(reason)))?;
        }
        let (huge, gigantic) = (get(Event::ShortHuge), get(Event::ShortGigantic));
        let demoted = get(Event::Demotion);
        write!(
            f,
            "}},\"short\":{{\"2M\":{huge},\"1G\":{gigantic}}},\"demoted\":{demoted}"
        )?;
        let (failed, copies) = (get(Event::DemotionFailed), get(Event::ForkCopy));
        write!(f, ",\"demotions_failed\":{failed},\"fork_copies\":{copies}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_counter_of_its_own() {
        let mut all: Vec<usize> = Reason::ALL.iter().map(|reason| Event::Fall(*reason).index()).collect();
        all.extend([
            Event::Served.index(),
            Event::short(Kind::Huge).index(),
            Event::short(Kind::Gigantic).index(),
            Event::Demotion.index(),
            Event::DemotionFailed.index(),
            Event::ForkCopy.index(),
        ]);
        all.sort_unstable();
        assert_eq!(all, (0..EVENTS).collect::<Vec<_>>());
    }

    #[test]
    fn a_process_is_a_line_of_json() {
        let mut usage = Usage::default();
        (usage.used[2], usage.peak[2], usage.live[2], usage.live_peak[2]) = (3, 5, 512, 1024);
        let mut counts = [0; EVENTS];
        counts[Event::Served.index()] = 7;
        counts[Event::Fall(Reason::NoRoom).index()] = 9;
        let process = Process {
            pid: 42,
            name: b"a\"b\\\xff\n",
            pools: [
                Some(Pool {
                    reserved_bytes: 1 << 30,
                    usage,
                }),
                None,
                Some(Pool::default()),
            ],
            counts,
        };
        assert_eq!(
            process.to_string(),
            "{\"schema\":1,\"kind\":\"memomania\",\"pid\":42,\"comm\":\"a\\\"b\\\\?\",\"pools\":{\"heap\":{\"reserved_bytes\":1073741824,\
             \"pages\":{\"2M\":{\"used_bytes\":12288,\"peak_bytes\":20480,\"taken_bytes\":2097152,\"taken_peak_bytes\":4194304}}},\
             \"anon\":{\"reserved_bytes\":0,\"pages\":{}}},\"served\":7,\"left_to_the_kernel\":{\"not_private\":0,\"address\":0,\
             \"protection\":0,\"flags\":0,\"invalid\":0,\"no_room\":9,\"no_pool\":0},\"short\":{\"2M\":0,\"1G\":0},\"demoted\":0,\
             \"demotions_failed\":0,\"fork_copies\":0}"
        );
    }
}
