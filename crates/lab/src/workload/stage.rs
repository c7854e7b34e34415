//! What a workload says and is told while it runs, the same for all of them:
//!
//! ```text
//!   born ─(--wait-first: go)─► start ─► phase… ─► ready ─(--wait: go)─► report… ─► result ─(--wait-first: a line)─► checked
//! ```
//!
//! With `--wait-first` nothing is mapped before `go`, so that a manager can be there before the first touch, and everything
//! stays mapped after `result` until a line or the end of the input comes, so that memory can be looked at.

use super::Common;
use crate::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::command::Commands;
use crate::emit::event;
use crate::latency::Latency;
use crate::memory::rss_bytes;
use serde_json::{json, Map, Value};

/// One workload's talk with whoever started it.
#[derive(Debug)]
pub struct Stage {
    workload: &'static str,
    commands: Commands,
    /// `--wait-first` was given.
    holds: bool,
}

impl Stage {
    /// Says `born`, and waits for `go` as asked. `None`: it is to end at once.
    pub(super) fn enter(workload: &'static str, common: &Common) -> Option<Self> {
        event("born", json!({"workload": workload, "pid": std::process::id()}));
        let commands = Commands::when(common.wait_first);
        commands.wait_for_go().then_some(Self {
            workload,
            commands,
            holds: common.wait_first,
        })
    }

    /// One that nobody talks to.
    #[cfg(test)]
    pub fn alone(workload: &'static str) -> Self {
        Self {
            workload,
            commands: Commands::none(),
            holds: false,
        }
    }

    /// Takes commands from now on if `wanted`; with `--wait-first` it does in any case.
    pub fn listen(&mut self, wanted: bool) {
        if wanted && !self.holds {
            self.commands = Commands::from_stdin();
        }
    }

    /// Waits for `go` if `wanted`. False when `quit` comes first.
    #[must_use]
    pub fn go(&mut self, wanted: bool) -> bool {
        self.listen(wanted);
        !wanted || self.commands.wait_for_go()
    }

    /// The commands that come.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Whether `quit` has come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.commands.poll().as_deref() == Some("quit")
    }

    fn say(&self, name: &str, areas: &[Value], fields: Value) {
        let mut members = json!({"workload": self.workload, "pid": std::process::id(), "areas": areas});
        if let (Value::Object(all), Value::Object(more)) = (&mut members, fields) {
            all.extend(more);
        }
        event(name, members);
    }

    /// Says that it begins to touch memory, in these areas.
    pub fn start(&self, areas: &[Value], fields: Value) {
        self.say("start", areas, fields);
    }

    /// Says that something new begins: `load`, `free`. What `ready` begins needs no name.
    pub fn phase(&self, name: &str) {
        event("phase", json!({ "name": name }));
    }

    /// Says that its memory is as it is to be, and what has been seen so far.
    pub fn ready(&self, areas: &[Value], fields: Value) {
        self.say("ready", areas, fields);
    }

    /// Says what came out: members of its own, metrics in base units with the unit last in the name, and latencies. With
    /// `--wait-first` it returns only when told to.
    pub fn result(&self, mut fields: Value, metrics: &[(&str, f64)], latencies: &[(&str, &Latency)]) {
        let metrics: Map<_, _> = metrics.iter().map(|(n, v)| ((*n).to_string(), json!(v))).collect();
        let seen = latencies.iter().filter(|(_, l)| l.count() > 0);
        let latency: Map<_, _> = seen.map(|(n, l)| ((*n).to_string(), json!(l.distribution()))).collect();
        fields["metrics"] = Value::Object(metrics);
        fields["latency"] = Value::Object(latency);
        event("result", fields);
        self.hold();
    }

    /// Waits for a line, or the end of the input, with `--wait-first`: called after the result, before anything is freed.
    pub fn hold(&self) {
        if self.holds {
            let _ = self.commands.next();
        }
    }
}

/// The clock of a loop that works for some time: counts operations and reports their rate once a second.
#[derive(Debug)]
pub struct Meter<'a> {
    stage: &'a Stage,
    start_ns: u64,
    now_ns: u64,
    end_ns: u64,
    operations: u64,
    /// When a rate was last reported, and how many operations were done by then.
    reported: (u64, u64),
}

/// Between two reports.
const REPORT_NS: u64 = 1_000_000_000;

impl<'a> Meter<'a> {
    /// Of a loop that begins now and works for `seconds`.
    #[must_use]
    pub fn new(stage: &'a Stage, seconds: f64) -> Self {
        let start_ns = now_ns();
        Self {
            stage,
            start_ns,
            now_ns: start_ns,
            end_ns: start_ns.saturating_add(seconds_to_ns(seconds)),
            operations: 0,
            reported: (start_ns, 0),
        }
    }

    /// Counts `operations` more. False when the time is over or `quit` has come. It reads the clock: to be called after some
    /// hundred operations.
    pub fn goes_on(&mut self, operations: u64) -> bool {
        self.operations += operations;
        self.now_ns = now_ns();
        if self.now_ns - self.reported.0 >= REPORT_NS {
            let rate = (self.operations - self.reported.1) as f64 / seconds_between(self.reported.0, self.now_ns);
            event(
                "report",
                json!({"ops": self.operations, "ops_per_s": rate, "rss_bytes": rss_bytes()}),
            );
            self.reported = (self.now_ns, self.operations);
        }
        self.now_ns < self.end_ns && !self.stage.is_over()
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Time from the beginning to the last count.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.now_ns - self.start_ns
    }

    /// Operations per second over all of that time.
    #[must_use]
    pub fn ops_per_s(&self) -> f64 {
        rate(self.operations, self.elapsed_ns())
    }
}

/// Things per second, of `count` in `elapsed_ns`.
#[must_use]
pub fn rate(count: u64, elapsed_ns: u64) -> f64 {
    count as f64 / seconds_between(0, elapsed_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_and_ends_in_time() {
        let stage = Stage::alone("test");
        let mut meter = Meter::new(&stage, 0.05);
        let mut rounds = 0;
        while meter.goes_on(10) {
            rounds += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(meter.operations(), (rounds + 1) * 10);
        assert!(meter.elapsed_ns() >= 50_000_000);
        let rate = meter.operations() as f64 / (meter.elapsed_ns() as f64 / 1e9);
        assert!((meter.ops_per_s() - rate).abs() < 1e-6);
    }

    #[test]
    fn a_loop_without_time_still_does_its_first_round() {
        let stage = Stage::alone("test");
        let mut meter = Meter::new(&stage, 0.0);
        assert!(!meter.goes_on(7));
        assert_eq!(meter.operations(), 7);
    }
}
