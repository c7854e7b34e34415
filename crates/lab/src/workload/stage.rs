//! The events and commands of a running workload, the same for all of them:
//!
//! ```text
//!   born ─(--wait-first: go)─► start ─► phase… ─► ready ─(--wait: go)─► report… ─► result ─(--wait-first: a line)─► checked
//! ```
//!
//! With `--wait-first` nothing is mapped before `go`, so that a manager can attach before the first touch, and everything
//! stays mapped after `result` until a line or end of input arrives, so that memory can be inspected.

use super::Common;
use crate::memory::rss_bytes;
use crate::protocol::command::Commands;
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::Latency;
use serde_json::{json, Map, Value};

/// A workload's connection to the process that started it.
#[derive(Debug)]
pub struct Stage {
    workload: &'static str,
    commands: Commands,
    /// `--wait-first` was given.
    holds: bool,
}

impl Stage {
    /// Emits `born`, and waits for `go` if requested. `None`: quit at once.
    pub(super) fn enter(workload: &'static str, common: &Common) -> Option<Self> {
        event("born", json!({"workload": workload, "pid": std::process::id()}));
        let commands = Commands::when(common.wait_first);
        commands.wait_for_go().then_some(Self {
            workload,
            commands,
            holds: common.wait_first,
        })
    }

    /// One without commands.
    #[cfg(test)]
    pub fn alone(workload: &'static str) -> Self {
        Self {
            workload,
            commands: Commands::none(),
            holds: false,
        }
    }

    /// Accepts commands from now on if `wanted`; with `--wait-first` it always does.
    pub fn listen(&mut self, wanted: bool) {
        if wanted && !self.holds {
            self.commands = Commands::from_stdin();
        }
    }

    /// Waits for `go` if `wanted`. False if `quit` arrives first.
    #[must_use]
    pub fn go(&mut self, wanted: bool) -> bool {
        self.listen(wanted);
        !wanted || self.commands.wait_for_go()
    }

    /// The command stream.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Whether `quit` has arrived.
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

    /// Emits `start`: it begins to touch memory, in these areas.
    pub fn start(&self, areas: &[Value], fields: Value) {
        self.say("start", areas, fields);
    }

    /// Emits `phase`: a named phase begins (`load`, `free`). The one after `ready` has no name.
    pub fn phase(&self, name: &str) {
        event("phase", json!({ "name": name }));
    }

    /// Emits `ready`: its memory is set up; `fields` are the figures so far.
    pub fn ready(&self, areas: &[Value], fields: Value) {
        self.say("ready", areas, fields);
    }

    /// Emits `result`: the workload's own members, metrics in base units with the unit last in the name, and latencies. With
    /// `--wait-first` it returns after the next command.
    pub fn result(&self, mut fields: Value, metrics: &[(&str, f64)], latencies: &[(&str, &Latency)]) {
        let metrics: Map<_, _> = metrics.iter().map(|(n, v)| ((*n).to_string(), json!(v))).collect();
        let seen = latencies.iter().filter(|(_, l)| l.count() > 0);
        let latency: Map<_, _> = seen.map(|(n, l)| ((*n).to_string(), json!(l.distribution()))).collect();
        fields["metrics"] = Value::Object(metrics);
        fields["latency"] = Value::Object(latency);
        event("result", fields);
        self.hold();
    }

    /// With `--wait-first`, waits for a line or end of input: called after the result, before memory is freed.
    pub fn hold(&self) {
        if self.holds {
            let _ = self.commands.next();
        }
    }
}

/// The clock of a timed loop: counts operations and reports their rate once a second.
#[derive(Debug)]
pub struct Meter<'a> {
    stage: &'a Stage,
    start_ns: u64,
    now_ns: u64,
    end_ns: u64,
    operations: u64,
    /// Time of the last report, and operations up to then.
    reported: (u64, u64),
}

/// Time between reports.
const REPORT_NS: u64 = 1_000_000_000;

impl<'a> Meter<'a> {
    /// Starts the clock of a loop of `seconds`.
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

    /// Adds `operations`. False when the time is over or `quit` has arrived. Reads the clock: call it once per some
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

    /// Time from the start to the last count.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.now_ns - self.start_ns
    }

    /// Operations per second over that time.
    #[must_use]
    pub fn ops_per_s(&self) -> f64 {
        rate(self.operations, self.elapsed_ns())
    }
}

/// Rate per second of `count` in `elapsed_ns`.
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
