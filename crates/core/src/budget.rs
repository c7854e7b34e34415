//! Limits on the cost of managing: stall, processor time, memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::action::{Action, ActionKind, Deferred, Expect};
use crate::observe::groups::{MemoryGroup, MemoryGroups};
use crate::observe::{Machine, NodeMemory, ProcessId};
use crate::units::{BasePages, Blocks, Bytes, Share, Time};

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Maximum share of time that one managed program is stalled, beyond the [`credit`] that it saves up.
    pub stall: Share,
    /// Maximum share of one processor used for managing, in total.
    pub cpu: Share,
    /// No promotion while less than this share of memory is available, of the machine's or of the NUMA node's that it would be taken from.
    pub free_memory: Share,
    /// No promotion while fewer blocks than this are free on the machine; nor while a NUMA node has fewer than its part of them.
    pub free_blocks: Blocks,
    /// No promotion and no clearing of accessed bits while some task stalled on memory for more than this share of the last 10 s (PSI).
    pub pressure: Share,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            stall: Share::percent(5),
            cpu: Share::percent(10),
            free_memory: Share::percent(5),
            free_blocks: Blocks(32),
            pressure: Share::percent(10),
        }
    }
}

impl Budget {
    /// Whether a control group that a process is in is under memory pressure.
    pub fn group_under_pressure(&self, groups: &MemoryGroups, process: ProcessId) -> bool {
        let over = |group: &MemoryGroup| group.pressure.is_some_and(|pressure| pressure > self.pressure);
        groups.above(process).any(over)
    }

    /// Whether memory is under pressure. Without PSI the answer is no.
    pub fn under_pressure(&self, machine: &Machine) -> bool {
        machine.pressure.is_some_and(|pressure| pressure > self.pressure)
    }

    /// How many promotions memory allows now; otherwise why none.
    pub fn promotions(&self, machine: &Machine) -> Result<u64, Deferred> {
        if self.under_pressure(machine) {
            return Err(Deferred::Pressure);
        }
        if !self
            .free_memory
            .reached_by(machine.available_bytes.0, machine.total_bytes.0)
        {
            return Err(Deferred::FreeMemory);
        }
        match machine.free_blocks.0.saturating_sub(self.free_blocks.0) {
            0 => Err(Deferred::FreeBlocks),
            blocks => Ok(blocks),
        }
    }

    /// The part of the floor of free blocks that a NUMA node keeps: as large as its part of the memory.
    pub fn blocks_kept_on(&self, node: &NodeMemory, machine: Bytes) -> Blocks {
        let kept = u128::from(self.free_blocks.0) * u128::from(node.total_bytes.0) / u128::from(machine.0.max(1));
        Blocks(u64::try_from(kept).unwrap_or(u64::MAX).min(self.free_blocks.0))
    }

    /// Why no promotion may take a block of this NUMA node, if so. Other nodes' memory does not help.
    pub fn holds_on(&self, node: &NodeMemory, machine: Bytes) -> Option<Deferred> {
        if !self.free_memory.reached_by(node.available_bytes.0, node.total_bytes.0) {
            return Some(Deferred::FreeMemory);
        }
        (node.free_blocks <= self.blocks_kept_on(node, machine)).then_some(Deferred::FreeBlocks)
    }

    /// Available memory above the floor.
    fn spare(&self, machine: &Machine) -> Bytes {
        let floor = u128::from(machine.total_bytes.0) * u128::from(self.free_memory.as_millionths());
        let floor = u64::try_from(floor.div_ceil(u128::from(Share::FULL.as_millionths()))).unwrap_or(u64::MAX);
        Bytes(machine.available_bytes.0.saturating_sub(floor))
    }
}

/// What memory allows until the next scan.
#[derive(Debug)]
pub struct MemoryRoom {
    budget: Budget,
    promotions: Result<u64, Deferred>,
    spare: Bytes,
    groups: MemoryGroups,
    clear_of_limits: Bytes,
}

impl MemoryRoom {
    /// The room that the budget leaves on this machine.
    pub fn new(budget: &Budget, machine: &Machine, groups: MemoryGroups) -> Self {
        Self {
            budget: *budget,
            groups,
            promotions: budget.promotions(machine),
            spare: budget.spare(machine),
            clear_of_limits: Bytes(0),
        }
    }

    /// Promotions that add memory also leave so much room below each control group's limit.
    pub fn clear_of_limits(mut self, room: Bytes) -> Self {
        self.clear_of_limits = room;
        self
    }

    /// Takes what the action may need; otherwise says why it is deferred. A demotion needs nothing.
    pub fn take(&mut self, action: &Action) -> Result<(), Deferred> {
        if action.kind == ActionKind::Demote {
            return Ok(());
        }
        let left = match self.promotions {
            Ok(left) => left.checked_sub(1).ok_or(Deferred::FreeBlocks)?,
            Err(why) => return Err(why),
        };
        // The huge page is charged before the base pages that it replaces are given back: where a group has no room for it, its own memory is
        // reclaimed first, or its programs are killed.
        if self.budget.group_under_pressure(&self.groups, action.process) {
            return Err(Deferred::Pressure);
        }
        let room = self.groups.tightest(action.process).and_then(|group| group.room);
        let populated = match action.expect {
            Expect::Populated(least) => least,
            Expect::Anything | Expect::Zero(_) | Expect::Kept(_) => BasePages::ZERO,
        };
        let grows = BasePages::REGION.less(populated).bytes().0;
        let clear = if grows > 0 { self.clear_of_limits.0 } else { 0 };
        if room.is_some_and(|room| room.0 < clear.max(BasePages::REGION.bytes().0)) {
            return Err(Deferred::FreeMemory);
        }
        self.spare = Bytes(self.spare.0.checked_sub(grows).ok_or(Deferred::FreeMemory)?);
        self.groups.take(action.process, Bytes(grows));
        self.promotions = Ok(left);
        Ok(())
    }
}

/// The pause after a stall of `took`, so that the stalled share of time is `budget`.
pub fn pause_after(took: Duration, budget: Share) -> Duration {
    let share = budget.fraction();
    if share >= 1.0 {
        return Duration::ZERO;
    }
    // A budget of 0 % would mean for ever; a day will do.
    let day = Duration::from_secs(86_400);
    Duration::try_from_secs_f64(took.as_secs_f64() * (1.0 - share) / share.max(1e-9))
        .map_or(day, |pause| pause.min(day))
}

/// The longest stall that a program saves up while it is left alone.
pub const CREDIT: Duration = Duration::from_millis(50);
/// And no more than the budget gives in this time.
const CREDIT_TIME: Duration = Duration::from_secs(1);

/// Stall that is saved up at most at this budget.
pub fn credit(budget: Share) -> Duration {
    CREDIT.min(CREDIT_TIME.mul_f64(budget.fraction()))
}

/// Spaces the actions on each process by how long they stall it: a token bucket, which fills at the budget's rate and holds [`credit`].
#[derive(Debug, Default)]
pub struct Pacing {
    /// When the bucket is full again.
    full_from: BTreeMap<ProcessId, Time>,
}

impl Pacing {
    /// When all stalls so far will have been earned: the process that was stalled least comes first by this.
    pub fn earned_at(&self, process: ProcessId) -> Time {
        self.full_from.get(&process).copied().unwrap_or_default()
    }

    /// When this process may be stalled again.
    pub fn free_from(&self, process: ProcessId, budget: Share) -> Time {
        let ahead = CREDIT_TIME.min(CREDIT.div_f64(budget.fraction().max(1e-6)));
        Time(self.earned_at(process).0.saturating_sub(ahead.as_nanos() as u64))
    }

    /// Records a stall that ended at `now` and lasted `took`; it is earned after all that are still to be earned.
    pub fn note(&mut self, process: ProcessId, now: Time, took: Duration, budget: Share) {
        let began = Time(now.0.saturating_sub(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)));
        let from = began.max(self.earned_at(process));
        self.full_from
            .insert(process, from.after(took + pause_after(took, budget)));
    }

    /// Drops processes that are gone.
    pub fn keep(&mut self, alive: impl Fn(ProcessId) -> bool) {
        self.full_from.retain(|process, _| alive(*process));
    }
}

/// What the processor budget saves up while there is little to do: this time's worth, or an interval's.
const CPU_TIME: Duration = Duration::from_secs(15);

/// Processor time as a token bucket that fills at the budget's rate and holds [`CPU_TIME`]'s worth, or one interval's.
#[derive(Debug)]
pub struct CpuBucket {
    rate: Share,
    most: Duration,
    debt: Duration,
    at: Time,
    spent: Duration,
}

impl CpuBucket {
    /// A bucket for this budget and interval, without debt.
    pub fn new(rate: Share, interval: Duration, now: Time, spent: Duration) -> Self {
        Self {
            rate,
            most: interval.max(CPU_TIME).mul_f64(rate.fraction()),
            debt: Duration::ZERO,
            at: now,
            spent,
        }
    }

    /// Records the total processor time spent so far.
    pub fn note(&mut self, now: Time, spent: Duration) {
        let earned = now.since(self.at).mul_f64(self.rate.fraction());
        self.debt = self.debt.saturating_sub(earned) + spent.saturating_sub(self.spent);
        self.at = now;
        self.spent = spent;
    }

    /// When there is processor time for more work.
    pub fn free_from(&self) -> Time {
        if self.rate == Share::FULL {
            return self.at;
        }
        let over = self.debt.saturating_sub(self.most);
        self.at.after(over.div_f64(self.rate.fraction().max(1e-6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Reason;
    use crate::observe::Region;
    use crate::policy::testing::machine;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_pause_makes_the_share_what_was_asked_for() {
        assert_eq!(pause_after(MS, Share::percent(50)), MS);
        assert_eq!(pause_after(MS, Share::percent(5)), 19 * MS);
        assert_eq!(pause_after(MS, Share::percent(100)), Duration::ZERO);
        assert!(pause_after(MS, Share::ZERO) >= Duration::from_secs(3600));
        assert_eq!(
            pause_after(Duration::MAX, Share::percent(1)),
            Duration::from_secs(86_400)
        );
    }

    #[test]
    fn memory_floors_at_just_under_and_just_over() {
        let budget = Budget::default();
        let total = machine().total_bytes.0;
        let at = |available, blocks, pressure| {
            budget.promotions(&Machine {
                available_bytes: Bytes(available),
                free_blocks: Blocks(blocks),
                pressure,
                ..machine()
            })
        };
        assert_eq!(at(total, 33, None), Ok(1));
        assert_eq!(at(total, 32, None), Err(Deferred::FreeBlocks));
        assert_eq!(at(total / 20, 100, None), Err(Deferred::FreeMemory));
        assert_eq!(at(total / 20 + 1, 100, None), Ok(68));
        assert_eq!(at(total, 100, Some(Share::percent(10))), Ok(68));
        assert_eq!(
            at(total, 100, Some(Share::millionths(100_001))),
            Err(Deferred::Pressure)
        );
    }

    #[test]
    fn promotions_together_stay_within_the_blocks_and_the_memory_over_the_floors() {
        let budget = Budget::default();
        let total = machine().total_bytes.0;
        let promote = |populated| Action {
            process: ProcessId { pid: 1, started: 1 },
            region: Region(1),
            kind: ActionKind::Promote,
            reason: Reason::Mapped,
            utilization: None,
            benefit: BasePages(populated),
            expect: Expect::Populated(BasePages(populated)),
        };
        let demote = Action {
            kind: ActionKind::Demote,
            ..promote(0)
        };
        let taken = |over_floor: u64, blocks: u64, populated| {
            let mut room = MemoryRoom::new(
                &budget,
                &Machine {
                    available_bytes: Bytes(total.div_ceil(20) + over_floor),
                    free_blocks: Blocks(32 + blocks),
                    ..machine()
                },
                MemoryGroups::default(),
            );
            let mut n = 0;
            let why = loop {
                match room.take(&promote(populated)) {
                    Ok(()) => n += 1,
                    Err(why) => break why,
                }
            };
            assert_eq!(room.take(&demote), Ok(()));
            (n, why)
        };
        assert_eq!(taken(8 << 20, 100, 0), (4, Deferred::FreeMemory));
        assert_eq!(taken((8 << 20) - 1, 100, 0), (3, Deferred::FreeMemory));
        assert_eq!(taken(8 << 20, 100, 256), (8, Deferred::FreeMemory));
        assert_eq!(taken(0, 7, 512), (7, Deferred::FreeBlocks));
    }

    #[test]
    fn promotions_stay_within_the_room_of_every_group_that_a_process_is_in() {
        let (a, b) = (ProcessId { pid: 1, started: 1 }, ProcessId { pid: 2, started: 1 });
        let promote = |process, populated| Action {
            process,
            region: Region(1),
            kind: ActionKind::Promote,
            reason: Reason::Mapped,
            utilization: None,
            benefit: BasePages(populated),
            expect: Expect::Populated(BasePages(populated)),
        };
        let group = |id, parent, mib: Option<u64>, pressure| MemoryGroup {
            id,
            parent,
            room: mib.map(Bytes::mib),
            pressure,
        };
        let room = |pressure| {
            let mut groups = MemoryGroups::default();
            let whole = groups.add(group(1, None, Some(7), None));
            let of_a = groups.add(group(2, Some(whole), None, None));
            let of_b = groups.add(group(3, Some(whole), Some(100), pressure));
            groups.assign(a, of_a);
            groups.assign(b, of_b);
            assert_eq!(groups.tightest(b).unwrap().id, 1);
            MemoryRoom::new(&Budget::default(), &machine(), groups)
        };
        let mut tight = room(None);
        // Each from one page to 512; the room is their parents'.
        assert_eq!(tight.take(&promote(a, 1)), Ok(()));
        assert_eq!(tight.take(&promote(b, 1)), Ok(()));
        assert_eq!(tight.take(&promote(a, 1)), Ok(()));
        assert_eq!(tight.take(&promote(b, 1)), Err(Deferred::FreeMemory));
        assert_eq!(
            tight.take(&promote(a, 512)),
            Err(Deferred::FreeMemory),
            "charged before it replaces anything"
        );
        let mut pressed = room(Some(Share::percent(50)));
        assert_eq!(pressed.take(&promote(b, 512)), Err(Deferred::Pressure));
        assert_eq!(
            pressed.take(&promote(a, 512)),
            Ok(()),
            "its own group is not under pressure"
        );
    }

    #[test]
    fn processor_time_over_what_was_saved_waits_until_it_is_earned() {
        for (interval_s, saved_ms) in [(5, 1500), (15, 1500), (20, 2000)] {
            let interval = Duration::from_secs(interval_s);
            let mut bucket = CpuBucket::new(Share::percent(10), interval, Time(0), Duration::ZERO);
            bucket.note(Time(0), saved_ms * MS);
            assert_eq!(bucket.free_from(), Time(0), "so much at once is fine");
            bucket.note(Time(0), (saved_ms + 100) * MS);
            assert_eq!(bucket.free_from(), Time(0).after(1000 * MS));
            bucket.note(Time(0).after(1000 * MS), (saved_ms + 100) * MS);
            assert_eq!(bucket.free_from(), Time(0).after(1000 * MS));
        }
    }

    proptest::proptest! {
        /// Whatever the calls take, the stalled share of time stays within the budget.
        #[test]
        fn pacing_keeps_the_stall_share(took_us in proptest::collection::vec(1u64..50_000, 1..200), percent in 1u32..=100) {
            let budget = Share::percent(percent);
            let process = ProcessId { pid: 1, started: 1 };
            let mut pacing = Pacing::default();
            let (mut now, mut held) = (Time(0), Duration::ZERO);
            for us in took_us {
                now = now.max(pacing.free_from(process, budget));
                let took = Duration::from_micros(us);
                held += took;
                now = now.after(took);
                pacing.note(process, now, took, budget);
            }
            let whole = now.max(pacing.free_from(process, budget)).since(Time(0));
            let limit = whole.mul_f64(budget.fraction()) + credit(budget) + Duration::from_micros(1);
            proptest::prop_assert!(held <= limit, "{held:?} of {whole:?}");
        }
    }
}
