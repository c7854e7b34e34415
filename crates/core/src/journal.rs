//! The journal: one line per event, for people, for machines and for replay. docs/journal.md has the grammar.
//!
//! A line is `TIME EVENT key=value …`: time in seconds since the manager started, the event's word, and the event's fields in the order of
//! their definition here. With `--json` the same fields are one JSON object per line. Both forms come from this one definition, so they
//! cannot diverge.

mod felt;
mod line;
mod repeats;
mod seen;

pub use felt::Felt;
pub use line::text_of;
pub use repeats::Repeats;
pub(crate) use seen::SEEN_MAX;
pub use seen::{see, seen};
use serde::{Deserialize, Serialize};

use crate::action::{Action, ActionKind, Deferred, Outcome, Reason};
use crate::budget::Budget;
use crate::compaction::target::Ended;
use crate::observe::{Region, Why};
use crate::units::Time;

/// Version of the grammar; raised when a field changes its meaning or is removed.
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
        /// Maximum share of time that a program is stalled, in millionths.
        stall_budget_ppm: u32,
        /// Maximum share of one processor used for managing, in millionths.
        cpu_budget_ppm: u32,
        /// Share of available memory below which nothing is promoted, in millionths.
        #[serde(default = "default_free_memory")]
        free_memory_ppm: u32,
        /// Free blocks below which nothing is promoted.
        #[serde(default = "default_free_blocks")]
        free_blocks: u64,
        /// Memory pressure above which nothing is promoted and no accessed bit is cleared, in millionths.
        #[serde(default = "default_pressure")]
        pressure_ppm: u32,
        /// Decisions are only logged.
        dry_run: bool,
        /// Compaction planner of the free-block target, with its parameters that differ from the default.
        compact: Option<String>,
        /// What it costs to touch a base page again after its accessed bit was cleared; none: taken as zero.
        touch_ns: Option<u64>,
    },
    /// A process is managed from now on.
    Found {
        /// PID.
        pid: u32,
        /// Start time in the host's ticks: with the PID it identifies the process.
        started: u64,
        /// Its command.
        name: String,
    },
    /// A process is gone.
    Gone {
        /// PID.
        pid: u32,
    },
    /// A process is not managed.
    Refused {
        /// PID.
        pid: u32,
        /// The reason.
        why: String,
    },
    /// A notice for the user.
    Notice {
        /// The notice.
        text: String,
    },
    /// The machine at a scan (full journal only).
    Machine {
        /// When it was observed, in nanoseconds since the manager started: the time that the policy was given.
        seen_ns: u64,
        /// Memory available without swapping.
        available_bytes: u64,
        /// All memory.
        total_bytes: u64,
        /// Free 2 MB blocks.
        free_blocks: u64,
        /// Memory pressure (PSI, some, 10 s), in millionths.
        pressure_ppm: Option<u32>,
    },
    /// The observation of a run of neighbouring regions that look the same (full journal only).
    See {
        /// PID.
        pid: u32,
        /// Start time in the host's ticks.
        started: u64,
        /// The first region.
        region: Region,
        /// Number of regions.
        count: u64,
        /// Base pages mapped, in each region.
        mapped_pages: u32,
        /// Base pages accessed, in each region.
        accessed_pages: u32,
        /// Base pages written, in each region.
        dirty_pages: u32,
        /// Base pages known to be all zeroes, in each region.
        zero_pages: Option<u32>,
        /// Base pages unmapped of huge pages that are whole still, in each region; left out where there are none, or none are known.
        kept_pages: Option<u32>,
        /// Those of `huge shared raced aged promote demote age` that hold, joined by `+`; `-` for none. The last three say what can be done.
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
        /// Base pages mapped; a huge page counts as 512.
        mapped_pages: u64,
        /// Base pages accessed since their bits were last cleared.
        accessed_pages: u64,
        /// Zero-filled base pages found inside huge pages.
        waste_pages: u64,
        /// Huge pages whose contents have been read.
        inspected: u64,
    },
    /// Regions that others collapsed since the scan before: khugepaged, the program, an agent in it.
    Collapsed {
        /// PID.
        pid: u32,
        /// How many.
        regions: u64,
    },
    /// The end of a scan of all processes, with its cost.
    Scanned {
        /// Processes.
        processes: u64,
        /// Candidates of the policy.
        candidates: u64,
        /// Duration.
        took_ns: u64,
        /// Processor time.
        cpu_ns: u64,
    },
    /// Accessed bits were cleared.
    Age {
        /// PID.
        pid: u32,
        /// Regions whose bits were cleared, or were clear.
        regions: u64,
        /// Regions that the kernel refused to clear.
        refused: u64,
        /// Regions that wait for their turn.
        #[serde(default)]
        later: u64,
        /// Expected stall of the program, if it uses again what it used.
        #[serde(default)]
        stall_ns: u64,
        /// Duration of the calls.
        took_ns: u64,
    },
    /// Fewer blocks are free than the compaction planner wants.
    Stock {
        /// Demand: blocks asked for since the last pass.
        asked_blocks: u64,
        /// Free blocks.
        free_blocks: u64,
        /// Blocks to make free.
        wanted_blocks: u64,
        /// Why no compaction is ordered now.
        why: Option<Deferred>,
    },
    /// The result of a compaction.
    Compacted {
        /// The actuator's name.
        way: String,
        /// Blocks ordered.
        asked_blocks: u64,
        /// Free blocks before.
        before_blocks: u64,
        /// Free blocks after.
        after_blocks: u64,
        /// Memory that went onto per-CPU free lists meanwhile, in blocks.
        on_lists_blocks: u64,
        /// Why it ended.
        ended: Ended,
        /// Base pages migrated meanwhile, by anyone.
        moved_pages: u64,
        /// Its duration; it ran in the background.
        took_ns: u64,
        /// Processor time it took, the kernel's compaction thread included.
        cpu_ns: u64,
        /// Outcomes of the selected blocks, as `word:count,…`; none where the kernel selected them.
        outcomes: Option<String>,
        /// Of those reported as freed, how many were found free.
        seen_free_blocks: Option<u64>,
    },
    /// A decision that was admitted; in a full journal and in a dry run, also a deferred one.
    Decide {
        /// PID.
        pid: u32,
        /// Region.
        region: Region,
        /// Action.
        action: ActionKind,
        /// Reason.
        reason: Reason,
        /// Utilization that it is based on, in millionths.
        utilization_ppm: Option<u32>,
        /// Expected benefit in base pages.
        benefit_pages: u32,
    },
    /// Deferred decisions. The next scan decides anew.
    Defer {
        /// PID.
        pid: u32,
        /// Action.
        action: ActionKind,
        /// Why they are deferred.
        why: Deferred,
        /// Number of regions.
        regions: u64,
    },
    /// The outcome of an action.
    Outcome {
        /// PID.
        pid: u32,
        /// Region.
        region: Region,
        /// Action.
        action: ActionKind,
        /// Outcome, by the look afterwards.
        outcome: Outcome,
        /// Duration of the call.
        took_ns: u64,
        /// For how long the program was stalled, where that is known to be less.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stall_ns: Option<u64>,
        /// Base pages given back.
        returned_pages: u32,
        /// Processor time spent on managing so far.
        #[serde(default)]
        cpu_ns: u64,
    },
    /// How long a program felt the actions on it: when it is gone, and at the end.
    Felt {
        /// PID.
        pid: u32,
        /// Actions that took any time.
        actions: u64,
        /// Stalls of all of them together.
        stall_ns: u64,
        /// The longest.
        longest_ns: u64,
        /// How many stalled it for less than so many microseconds, and for at least the bound before, as `us:count,…`.
        under_us: String,
    },
    /// What the agent in a program has done so far: when it was seen first, and whenever it had done more.
    Agent {
        /// PID.
        pid: u32,
        /// What runs beside the program: `process`, `thread` or `none`.
        helper: String,
        /// Mappings advised.
        advised: u64,
        /// Regions in them.
        advised_regions: u64,
        /// Mappings whose advice was withdrawn.
        withdrawn: u64,
        /// Regions populated ahead of the program.
        populated_regions: u64,
        /// Regions collapsed.
        collapsed: u64,
        /// Collapses that failed.
        collapse_failed: u64,
        /// Regions split and given back.
        given_back: u64,
        /// Regions left to base pages as probes.
        probes: u64,
        /// Time that its looks and decisions took.
        look_ns: u64,
        /// Time that its actions took.
        act_ns: u64,
        /// What a refused call has switched off, with the error number, as `what:errno,…`; none if nothing.
        refused: Option<String>,
        /// Why there is no helper; none where there is or was one.
        why: Option<String>,
    },
    /// Managing ends.
    Stop {
        /// Scans made.
        scans: u64,
        /// Promotions done.
        promoted: u64,
        /// Demotions done.
        demoted: u64,
        /// Actions that were tried and not done.
        failed: u64,
        /// Memory given back.
        returned_bytes: u64,
        /// Time for which programs may have been stalled.
        stall_ns: u64,
        /// Processor time spent on managing.
        cpu_ns: u64,
    },
}

impl Event {
    /// The process that it is about, if it is about one.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Found { pid, .. }
            | Self::Gone { pid }
            | Self::Refused { pid, .. }
            | Self::See { pid, .. }
            | Self::Scan { pid, .. }
            | Self::Collapsed { pid, .. }
            | Self::Age { pid, .. }
            | Self::Decide { pid, .. }
            | Self::Defer { pid, .. }
            | Self::Outcome { pid, .. }
            | Self::Felt { pid, .. }
            | Self::Agent { pid, .. } => Some(*pid),
            _ => None,
        }
    }
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

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Time since the manager started.
    pub at: Time,
    /// The event.
    pub event: Event,
}

/// Why a text is not a line of the journal.
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
                name: "a \"b\" c=d \n é \u{9b}31m \u{202e}x".into(),
            },
            Event::Gone { pid: 1 },
            Event::Collapsed { pid: 1, regions: 3 },
            Event::Felt {
                pid: 1,
                actions: 60,
                stall_ns: 4_100_000,
                longest_ns: 611_000,
                under_us: "32:54,1024:6".into(),
            },
            Event::Agent {
                pid: 7,
                helper: "process".into(),
                advised: 1,
                advised_regions: 2048,
                withdrawn: 0,
                populated_regions: 96,
                collapsed: 4,
                collapse_failed: 1,
                given_back: 2,
                probes: 3,
                look_ns: 31_000_000,
                act_ns: 9_000_000,
                refused: Some("populate:1".into()),
                why: None,
            },
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
                action: ActionKind::Demote,
                outcome: Outcome::Ineligible(Why::Mlocked),
                took_ns: 5,
                stall_ns: Some(3),
                returned_pages: 0,
                cpu_ns: 7,
            },
            Event::Decide {
                pid: 1,
                region: Region(7),
                action: ActionKind::Promote,
                reason: Reason::Utilized,
                utilization_ppm: None,
                benefit_pages: 512,
            },
            Event::Defer {
                pid: 1,
                action: ActionKind::Promote,
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
                action: ActionKind::Promote,
                outcome: Outcome::Failed(5),
                took_ns: 430_000,
                stall_ns: None,
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
