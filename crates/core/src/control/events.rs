//! What the loop reports: the journal's lines and the status.

use super::admit::Waiting;
use super::{nanos, Control};
use crate::host::{Host, HostEvent};
use crate::journal::{see, Event, Line, SCHEMA};
use crate::observe::{ProcessId, ProcessView, Snapshot};
use crate::policy::Param;
use crate::units::{BasePages, Bytes, Time};

impl<H: Host> Control<'_, H> {
    pub(super) fn say(&mut self, event: Event) {
        self.say_at(self.host.now(), event);
    }

    /// Where the loop uses a moment in its decisions, the journal has exactly that moment, so that a replay uses it too.
    pub(super) fn say_at(&mut self, at: Time, event: Event) {
        let line = Line {
            at: Time(at.0.saturating_sub(self.started.0)),
            event,
        };
        self.observer.event(&line);
    }

    pub(super) fn say_start(&mut self) {
        let changed = |params: Vec<Param>| {
            let changed = params.into_iter().filter(|param| param.value != param.default);
            let settings: Vec<_> = changed.map(|param| format!("{}={}", param.name, param.value)).collect();
            settings.join(",")
        };
        let compact = self.target.as_ref().map(|target| {
            let (name, params) = (target.planner().name(), changed(target.planner().params()));
            let colon = if params.is_empty() { "" } else { ":" };
            format!("{name}{colon}{params}")
        });
        self.say(Event::Start {
            schema: SCHEMA,
            clock_ns: self.started.0,
            policy: self.policy.name().to_string(),
            params: changed(self.policy.params()),
            interval_ns: nanos(self.settings.interval),
            stall_budget_ppm: self.settings.budget.stall.as_millionths(),
            cpu_budget_ppm: self.settings.budget.cpu.as_millionths(),
            free_memory_ppm: self.settings.budget.free_memory.as_millionths(),
            free_blocks: self.settings.budget.free_blocks.0,
            pressure_ppm: self.settings.budget.pressure.as_millionths(),
            dry_run: self.settings.dry_run,
            compact,
            touch_ns: Some(nanos(self.host.touch_cost())).filter(|ns| *ns > 0),
        });
    }

    pub(super) fn say_stop(&mut self) {
        self.account();
        let s = &self.status;
        self.say(Event::Stop {
            scans: s.scans,
            promoted: s.promoted,
            demoted: s.demoted,
            failed: s.failed,
            returned_bytes: s.returned.0,
            stall_ns: nanos(s.stall),
            cpu_ns: nanos(s.cpu),
        });
    }

    /// Journals the host's events; returns the processes that are gone.
    pub(super) fn say_events(&mut self) -> Vec<ProcessId> {
        let mut gone = Vec::new();
        for event in self.host.events() {
            if let HostEvent::Gone(id) = event {
                gone.push(id);
            }
            let event = match event {
                HostEvent::Found(id, name) => Event::Found {
                    pid: id.pid,
                    started: id.started,
                    name,
                },
                HostEvent::Gone(id) => Event::Gone { pid: id.pid },
                HostEvent::Refused(pid, why) => Event::Refused { pid, why },
                HostEvent::Notice(text) => Event::Notice { text },
                HostEvent::Compacted(done) => self.note_compacted(&done),
            };
            self.say(event);
        }
        gone
    }

    pub(super) fn tell_status(&mut self) {
        self.account();
        self.observer.status(&self.status);
    }

    pub(super) fn journal_snapshot(&mut self, snapshot: &Snapshot) {
        if self.settings.full_journal {
            let machine = &snapshot.machine;
            self.say(Event::Machine {
                seen_ns: nanos(snapshot.at.since(self.started)),
                available_bytes: machine.available_bytes.0,
                total_bytes: machine.total_bytes.0,
                free_blocks: machine.free_blocks.0,
                pressure_ppm: machine.pressure.map(|p| p.as_millionths()),
            });
        }
        let (mut regions, mut huge, mut waste) = (0, 0, 0);
        for process in &snapshot.processes {
            if self.settings.full_journal {
                self.journal_regions(process);
            }
            let pages =
                |f: fn(&crate::observe::Observation) -> u32| process.regions.iter().map(|o| u64::from(f(o))).sum();
            let scan = Event::Scan {
                pid: process.id.pid,
                regions: process.regions.len() as u64,
                huge: process.regions.iter().filter(|o| o.huge).count() as u64,
                mapped_pages: pages(|o| o.mapped.0),
                accessed_pages: pages(|o| o.accessed.0),
                waste_pages: pages(|o| if o.huge { o.zero.unwrap_or_default().0 } else { 0 }),
                inspected: process.regions.iter().filter(|o| o.huge && o.zero.is_some()).count() as u64,
            };
            if let Event::Scan {
                regions: r,
                huge: h,
                waste_pages: w,
                ..
            } = scan
            {
                regions += r;
                huge += h;
                waste += w;
            }
            self.say(scan);
            let by_others = self.others.collapsed(process);
            if by_others > 0 {
                self.status.by_others += by_others;
                self.say(Event::Collapsed {
                    pid: process.id.pid,
                    regions: by_others,
                });
            }
        }
        self.status.processes = snapshot.processes.len();
        self.status.regions = regions;
        self.status.huge = huge;
        self.status.waste = Bytes(waste * BasePages(1).bytes().0);
    }

    fn journal_regions(&mut self, process: &ProcessView) {
        let mut rest = process.regions.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest
                .iter()
                .enumerate()
                .take_while(|(i, o)| {
                    let mut moved = **o;
                    moved.region = first.region;
                    moved == *first && o.region.0 == first.region.0 + *i as u64
                })
                .count();
            self.say(see(process.id.pid, process.id.started, first, alike as u64));
            rest = &rest[alike..];
        }
    }

    pub(super) fn say_waiting(&mut self, waiting: Waiting) {
        for ((pid, action, why), regions) in waiting {
            self.status.waiting += regions;
            self.say(Event::Defer {
                pid,
                action,
                why,
                regions,
            });
        }
    }
}
