//! The journal: one line per event, for people, for machines and for replay. docs/journal.md has the grammar.
//!
//! A line is `TIME EVENT key=value …`: time in seconds since the manager started, the event's word, and the event's fields in the
//! order of their definition here. With `--json` the same fields are one JSON object a line. Both come from the one definition
//! below, so they cannot drift apart.

mod line;
mod seen;

pub(crate) use seen::SEEN_MAX;
pub use seen::{see, seen};
use serde::{Deserialize, Serialize};

use crate::action::{Action, Kind, Outcome, Reason};
use crate::budget::Budget;
use crate::observe::{Region, Why};
use crate::stock::Ended;
use crate::units::Time;

/// Version of the grammar; raised when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// Managing begins.
    Start {
        /// Version of this grammar.
        schema: u32,
        /// The host's clock at time 0 of this journal (Linux: CLOCK_MONOTONIC), to line it up with other logs.
        clock_ns: u64,
        /// Policy.
        policy: String,
        /// Its parameters that differ from the default, as `name=value,…`.
        params: String,
        /// Time between scans.
        interval_ns: u64,
        /// Share of time for which a program may be held up, in millionths.
        stall_budget_ppm: u32,
        /// Share of one processor that managing may use, in millionths.
        cpu_budget_ppm: u32,
        /// Share of memory under which nothing is promoted, in millionths.
        #[serde(default = "default_free_memory")]
        free_memory_ppm: u32,
        /// Free blocks under which nothing is promoted.
        #[serde(default = "default_free_blocks")]
        free_blocks: u64,
        /// Memory pressure over which nothing is promoted or cleared, in millionths.
        #[serde(default = "default_pressure")]
        pressure_ppm: u32,
        /// Nothing is acted on.
        dry_run: bool,
        /// Planner of the stock of free blocks, with its parameters that differ from the default.
        compact: Option<String>,
        /// What a base page costs that is touched again after its accessed bit was cleared; none: taken for nothing.
        touch_ns: Option<u64>,
    },
    /// A process is managed from now on.
    Found {
        /// PID.
        pid: u32,
        /// Start time in the host's ticks: with the PID it names the process for good.
        started: u64,
        /// Its command.
        name: String,
    },
    /// A process is no more.
    Gone {
        /// PID.
        pid: u32,
    },
    /// A process is not managed.
    Refused {
        /// PID.
        pid: u32,
        /// Why not.
        why: String,
    },
    /// Something that people should know.
    Notice {
        /// What.
        text: String,
    },
    /// The machine at a scan (full journal only).
    Machine {
        /// When it was seen, in nanoseconds since the manager started: what the policy was told.
        seen_ns: u64,
        /// Memory to be had without swapping.
        available_bytes: u64,
        /// All memory.
        total_bytes: u64,
        /// Free 2 MB blocks.
        free_blocks: u64,
        /// Memory pressure (PSI, some, 10 s), in millionths.
        pressure_ppm: Option<u32>,
    },
    /// What was seen of a run of neighbouring regions that look alike (full journal only).
    See {
        /// PID.
        pid: u32,
        /// Start time in the host's ticks.
        started: u64,
        /// The first of them.
        region: Region,
        /// How many.
        count: u64,
        /// Base pages mapped, in each.
        mapped_pages: u32,
        /// Base pages accessed.
        accessed_pages: u32,
        /// Base pages written.
        dirty_pages: u32,
        /// Base pages that hold only zeroes, if known.
        zero_pages: Option<u32>,
        /// Of `huge shared raced aged promote demote age`, those that hold, joined by `+`; `-` for none. The last three
        /// say what can be done.
        flags: String,
        /// Why something cannot be done.
        why: Option<Why>,
    },
    /// A scan of one process.
    Scan {
        /// PID.
        pid: u32,
        /// Regions with anything mapped.
        regions: u64,
        /// Those that are huge.
        huge: u64,
        /// Base pages mapped, huge pages counted with all of theirs.
        mapped_pages: u64,
        /// Base pages accessed since the last clearing.
        accessed_pages: u64,
        /// Zero-filled base pages seen inside huge pages.
        waste_pages: u64,
        /// Huge pages whose contents were looked at so far.
        inspected: u64,
    },
    /// The end of a scan of everything, with its cost.
    Scanned {
        /// Processes.
        processes: u64,
        /// Candidates of the policy.
        candidates: u64,
        /// Time it took.
        took_ns: u64,
        /// Processor time it took.
        cpu_ns: u64,
    },
    /// Accessed bits were cleared.
    Age {
        /// PID.
        pid: u32,
        /// Regions cleared, or clear already.
        regions: u64,
        /// Regions where the kernel said no.
        refused: u64,
        /// Regions that wait for their turn.
        #[serde(default)]
        later: u64,
        /// For how long the program is held up, if it uses again what it used.
        #[serde(default)]
        stall_ns: u64,
        /// Time in the calls.
        took_ns: u64,
    },
    /// Free blocks are short of what the planner of the stock wants.
    Stock {
        /// Blocks that were asked for since the last pass.
        asked_blocks: u64,
        /// Blocks that are free.
        free_blocks: u64,
        /// Blocks to make.
        wanted_blocks: u64,
        /// Why they are not ordered now.
        why: Option<Deferred>,
    },
    /// What came of making blocks.
    Compacted {
        /// How.
        way: String,
        /// Blocks ordered.
        asked_blocks: u64,
        /// Blocks that were free.
        before_blocks: u64,
        /// Blocks that are free.
        after_blocks: u64,
        /// Memory that went onto the processors' own free lists meanwhile, in blocks.
        on_lists_blocks: u64,
        /// Why it ended.
        ended: Ended,
        /// Base pages moved meanwhile, by whomever.
        moved_pages: u64,
        /// Time it took, beside the loop.
        took_ns: u64,
        /// Processor time it took, the kernel's compaction thread included.
        cpu_ns: u64,
        /// Of chosen blocks, how many came to what, as `word:count,…`; none where the kernel chose.
        outcomes: Option<String>,
        /// Of them that are said to have become free, how many were seen so.
        seen_free_blocks: Option<u64>,
    },
    /// An action was decided and taken into the budget; in a full journal and in a dry run, also one that waits.
    Decide {
        /// PID.
        pid: u32,
        /// Region.
        region: Region,
        /// Action.
        action: Kind,
        /// Reason.
        reason: Reason,
        /// Utilization that it rests on, in millionths.
        utilization_ppm: Option<u32>,
        /// Expected benefit.
        benefit_pages: u32,
    },
    /// Decisions that wait, and are taken anew at the next scan.
    Defer {
        /// PID.
        pid: u32,
        /// Action.
        action: Kind,
        /// What they wait for.
        why: Deferred,
        /// How many regions.
        regions: u64,
    },
    /// What became of an action.
    Outcome {
        /// PID.
        pid: u32,
        /// Region.
        region: Region,
        /// Action.
        action: Kind,
        /// Outcome, by the look afterwards.
        outcome: Outcome,
        /// Time in the call.
        took_ns: u64,
        /// Base pages given back.
        returned_pages: u32,
        /// Processor time that managing has taken so far.
        #[serde(default)]
        cpu_ns: u64,
    },
    /// Managing ends.
    Stop {
        /// Scans made.
        scans: u64,
        /// Promotions done.
        promoted: u64,
        /// Demotions done.
        demoted: u64,
        /// Actions that did not come to be.
        failed: u64,
        /// Memory given back.
        returned_bytes: u64,
        /// Time for which programs may have been held up.
        stall_ns: u64,
        /// Processor time that managing took.
        cpu_ns: u64,
    },
}

fn default_free_memory() -> u32 {
    Budget::default().free_memory.as_millionths()
}

fn default_free_blocks() -> u64 {
    Budget::default().free_blocks.0
}

fn default_pressure() -> u32 {
    Budget::default().pressure.as_millionths()
}

/// Why a decision waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deferred {
    /// The stall or the processor budget of this interval is used up.
    Budget,
    /// It failed not long ago.
    BackOff,
    /// It was demoted, and came back.
    Flapping,
    /// Free memory is below its floor.
    FreeMemory,
    /// Free blocks are below their floor.
    FreeBlocks,
    /// Tasks wait for memory.
    Pressure,
    /// A promotion in the same process found no memory during this scan.
    NoMemory,
    /// Nothing is acted on.
    DryRun,
    /// The last compaction is still under way.
    Busy,
}

/// The `decide` event of this action.
pub fn decide(action: &Action) -> Event {
    Event::Decide {
        pid: action.process.pid,
        region: action.region,
        action: action.kind,
        reason: action.reason,
        utilization_ppm: action.utilization.map(|u| u.as_millionths()),
        benefit_pages: action.benefit.0,
    }
}

/// An event and when it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Time,
    /// What.
    pub event: Event,
}

/// Why a line is not one of the journal's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("journal line: {0}")]
pub struct JournalError(String);

impl JournalError {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> Vec<Event> {
        vec![
            Event::Start {
                schema: SCHEMA,
                clock_ns: 461_412_000_000,
                policy: "mega".into(),
                params: "mprom=80%,n=5".into(),
                interval_ns: 5_000_000_000,
                stall_budget_ppm: 50_000,
                cpu_budget_ppm: 100_000,
                free_memory_ppm: 60_000,
                free_blocks: 33,
                pressure_ppm: 0,
                dry_run: false,
                compact: Some("demand:reserve=64M".into()),
                touch_ns: Some(480),
            },
            Event::Stock {
                asked_blocks: 40,
                free_blocks: 12,
                wanted_blocks: 44,
                why: Some(Deferred::Busy),
            },
            Event::Compacted {
                way: "node".into(),
                asked_blocks: 44,
                before_blocks: 12,
                after_blocks: 57,
                on_lists_blocks: 0,
                ended: Ended::Amount,
                moved_pages: 9000,
                took_ns: 21_000_000,
                cpu_ns: 20_000_000,
                outcomes: Some("freed:43,no-room:1".into()),
                seen_free_blocks: Some(43),
            },
            Event::Found {
                pid: 1,
                started: 2,
                name: "a \"b\" c=d \n é".into(),
            },
            Event::Gone { pid: 1 },
            Event::Refused {
                pid: 1,
                why: "a kernel thread".into(),
            },
            Event::Notice { text: "true".into() },
            Event::Notice { text: "12".into() },
            Event::Notice { text: String::new() },
            Event::Outcome {
                pid: 1,
                region: Region(7),
                action: Kind::Demote,
                outcome: Outcome::Ineligible(Why::Mlocked),
                took_ns: 5,
                returned_pages: 0,
                cpu_ns: 7,
            },
            Event::Decide {
                pid: 1,
                region: Region(7),
                action: Kind::Promote,
                reason: Reason::Utilized,
                utilization_ppm: None,
                benefit_pages: 512,
            },
            Event::Defer {
                pid: 1,
                action: Kind::Promote,
                why: Deferred::FreeBlocks,
                regions: 3,
            },
        ]
    }

    #[test]
    fn every_event_reads_back_from_both_forms() {
        for event in events() {
            let line = Line {
                at: Time(12_345_678_000),
                event,
            };
            assert_eq!(Line::parse(&line.to_text()), Ok(line.clone()), "{}", line.to_text());
            assert_eq!(Line::parse(&line.to_json()), Ok(line.clone()), "{}", line.to_json());
            assert!(!line.to_text().contains('\n'));
        }
    }

    #[test]
    fn a_line_looks_as_documented() {
        let line = Line {
            at: Time(12_345_678_901),
            event: Event::Outcome {
                pid: 41,
                region: Region::at(0x7f00_0020_0000),
                action: Kind::Promote,
                outcome: Outcome::Failed(5),
                took_ns: 430_000,
                returned_pages: 0,
                cpu_ns: 12_000_000,
            },
        };
        assert_eq!(
            line.to_text(),
            "12.345678 outcome pid=41 region=0x7f0000200000 action=promote outcome=failed(5) took_ns=430000 returned_pages=0 cpu_ns=12000000"
        );
    }

    #[test]
    fn lines_that_are_not_of_the_journal_are_errors() {
        for text in [
            "",
            "x",
            "1.000000",
            "1.000000 nonsense",
            "1.000000 gone",
            "1.000000 gone pid",
            "1.000000 gone pid=x",
            "1.000000 gone pid=1 pid=2",
            "1.000000 gone pid=1 more=2",
            "1.000000 notice text=\"open",
            "{",
            "{}",
            "{\"at_ns\":1}",
            "1.000000 notice text=\"a\"b",
            "1.000000 outcome pid=1 region=0x1 action=promote outcome=done took_ns=1 returned_pages=0",
        ] {
            assert!(Line::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}", tail in "( [a-z_]{1,8}=[^ ]{0,8}){0,6}") {
            let _ = Line::parse(&text);
            let _ = Line::parse(&format!("1.000000 see{tail}")).map(|line| seen(&line.event));
        }

        #[test]
        fn any_notice_reads_back(text in any::<String>()) {
            let line = Line { at: Time(0), event: Event::Notice { text } };
            prop_assert_eq!(Line::parse(&line.to_text()), Ok(line.clone()));
        }
    }
}
