//! `mega compact`: make free 2 MB blocks by hand, once or again and again.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::compaction::planner::{self, Choice, Planner, PlannerInput};
use mega_core::compaction::target::{Ended, FreeBlockTarget, Order};
use mega_core::units::{show_duration, Blocks, Bytes, Time, HUGE_PAGE_BYTES};
use mega_linux::blocks::fragmentation::{self, Fragmentation};
use mega_linux::blocks::{self, BlocksError, Sampling};
use mega_linux::compact::{available, compact, open, open_chosen, Actuator, Report, Way};
use mega_linux::knobs::STATE_FOLDER;
use mega_linux::module::Module;
use mega_linux::proc::{buddyinfo, meminfo, vmstat, ProcRoot};
use mega_linux::sys;
use serde_json::json;

use crate::args::{CompactArgs, MadeBy};
use mega_cli::contiguity::brief;
use mega_cli::exit::{tell, Failure};
use mega_cli::settings::{describe_restored, open_knobs};
use mega_cli::signals::stop_on_signals;
use mega_cli::signals::stopped;

/// Makes blocks, and says what that cost.
pub fn run(args: &CompactArgs) -> Result<()> {
    let mut planner = planner::from_text(&args.planner).map_err(Failure::usage)?;
    if let Some(budget) = args.budget {
        planner.set("budget", &budget.0.to_string()).map_err(Failure::usage)?;
    }
    if let Some(every) = args.watch {
        let interval = format!("{}ms", every.as_millis());
        planner.set("interval", &interval).map_err(Failure::usage)?;
    } else if planner.name() == "demand" {
        let why = "planner 'demand' makes what is asked for while it watches: give it --watch";
        return Err(Failure::usage(why));
    }
    let stop = stop_on_signals()?;
    let root = ProcRoot::default();
    let how = match args.how {
        MadeBy::Only(way) => way,
        MadeBy::Auto if available(Way::Chosen, &root).is_ok() => Way::Chosen,
        MadeBy::Auto => Way::Node,
    };
    let mut actuator = None;
    if args.dry_run {
        available(how, &root)?;
    } else {
        let way = match how {
            Way::Chosen => open_chosen(planner::from_text(&args.planner).map_err(Failure::usage)?)?,
            how => open(how, &root, STATE_FOLDER.as_ref())?,
        };
        if !matches!(how, Way::Chosen | Way::Node | Way::Collapse) {
            // What one that was killed left behind is put back first.
            let left = open_knobs()?
                .recover()
                .context("cannot put back what was left behind")?;
            describe_restored(&left)
                .iter()
                .for_each(|text| tell(&format!("mega: {text}")));
        }
        actuator = Some(way);
    }
    let compactor = Compactor { args, how, root, stop };
    match args.watch {
        None => compactor.once(planner.as_mut(), actuator),
        Some(_) => compactor.watch(planner, actuator),
    }
}

struct Compactor<'a> {
    args: &'a CompactArgs,
    how: Way,
    root: ProcRoot,
    stop: OwnedFd,
}

impl Compactor<'_> {
    fn once(&self, planner: &mut dyn Planner, actuator: Option<Box<dyn Actuator>>) -> Result<()> {
        let plan = self.plan(planner)?;
        let Some(mut actuator) = actuator else {
            return self.say_plan(planner.name(), &plan);
        };
        if plan.blocks == Blocks(0) {
            let state = fragmentation::read(&self.root)?;
            return self.say_nothing(planner.name(), &state);
        }
        let before = fragmentation::read(&self.root)?;
        let report = self.make(actuator.as_mut(), &plan)?;
        let after = fragmentation::read(&self.root)?;
        self.say(planner.name(), &report, &before, &after)?;
        match report.done.ended {
            Ended::Stopped => anyhow::bail!("stopped before it was done"),
            _ => Ok(()),
        }
    }

    /// Pass after pass, until it is told to stop.
    fn watch(&self, planner: Box<dyn Planner>, mut actuator: Option<Box<dyn Actuator>>) -> Result<()> {
        let mut target = FreeBlockTarget::new(planner);
        loop {
            let now = Time(sys::monotonic().as_nanos() as u64);
            let before = fragmentation::read(&self.root)?;
            let zones = blocks::free_by_zone(&self.root)?;
            let counters = vmstat::read(&self.root)?;
            let faults = [counters.thp_fault_alloc(), counters.thp_fault_fallback()];
            let asked = target.asked(0, 0, faults.into_iter().flatten().sum());
            let seen = PlannerInput {
                blocks: &[],
                zones: &zones,
                total: self.total()?,
                asked,
            };
            let pass = target.pass(now, &seen);
            let name = target.planner().name();
            let mut plan = Plan {
                blocks: pass.wanted,
                choices: None,
            };
            match actuator.as_mut() {
                _ if pass.wanted == Blocks(0) => self.say_nothing(name, &before)?,
                None => self.say_plan(name, &plan)?,
                Some(_) if pass.held => self.say_held(name, &before)?,
                Some(actuator) => {
                    if self.how == Way::Offline {
                        plan.choices =
                            self.choices(planner::from_text(&self.args.planner).map_err(Failure::usage)?.as_mut());
                    }
                    let report = self.make(actuator.as_mut(), &plan)?;
                    target.note(Time(sys::monotonic().as_nanos() as u64), &report.done);
                    let after = fragmentation::read(&self.root)?;
                    self.say(name, &report, &before, &after)?;
                }
            }
            let now = Time(sys::monotonic().as_nanos() as u64);
            if stopped(&self.stop, target.due().since(now)) {
                return Ok(());
            }
        }
    }

    fn total(&self) -> Result<Bytes> {
        Ok(Bytes(meminfo::read(&self.root)?.total_bytes.unwrap_or(0)))
    }

    /// What the planner wants: by name where blocks can be seen, by number where not.
    fn plan(&self, planner: &mut dyn Planner) -> Result<Plan> {
        if let Some(choices) = self.choices(planner) {
            return Ok(Plan {
                blocks: Blocks(choices.len() as u64),
                choices: Some(choices),
            });
        }
        let zones = blocks::free_by_zone(&self.root)?;
        let blocks = planner.want(&PlannerInput {
            blocks: &[],
            zones: &zones,
            total: self.total()?,
            asked: Blocks(0),
        });
        Ok(Plan { blocks, choices: None })
    }

    fn choices(&self, planner: &mut dyn Planner) -> Option<Vec<Choice>> {
        if self.how == Way::Chosen {
            if let Ok((blocks, zones)) = Module::open()
                .map_err(BlocksError::from)
                .and_then(|module| blocks::read_by_module(&self.root, &module))
            {
                return Some(planner.plan(&PlannerInput {
                    blocks: &blocks,
                    zones: &zones,
                    total: self.total().ok()?,
                    asked: Blocks(0),
                }));
            }
        }
        match blocks::read(&self.root, Sampling::Auto) {
            Ok(seen) if seen.every == 1 => Some(planner.plan(&PlannerInput {
                blocks: &seen.blocks,
                zones: &seen.zones,
                total: self.total().ok()?,
                asked: Blocks(0),
            })),
            // A sample says which, not how many.
            Ok(_) => None,
            Err(error) => {
                tell(&format!("mega: blocks are counted, not selected: {error}"));
                None
            }
        }
    }

    fn make(&self, actuator: &mut dyn Actuator, plan: &Plan) -> Result<Report> {
        let order = Order {
            blocks: plan.blocks,
            time: self.args.time,
        };
        let chosen: Vec<_> = plan.choices.iter().flatten().map(|choice| choice.hpfn).collect();
        let progress = Progress::new(&self.root, order.blocks, self.args.json);
        let asked = || {
            progress.show();
            stopped(&self.stop, Duration::ZERO)
        };
        let report = compact(actuator, &self.root, &order, &chosen, &asked);
        progress.clear();
        Ok(report?)
    }

    fn say(&self, planner: &str, report: &Report, before: &Fragmentation, after: &Fragmentation) -> Result<()> {
        let done = &report.done;
        let mut out = std::io::stdout().lock();
        if self.args.json {
            let line = json!({
                "schema": 1,
                "kind": "compact",
                "planner": planner,
                "way": done.way,
                "asked_blocks": done.asked.0,
                "before_blocks": done.before.0,
                "after_blocks": done.after.0,
                "on_lists_blocks": done.on_lists.0,
                "ended": done.ended.word(),
                "moved_pages": done.moved_pages,
                "took_ns": ns(done.took),
                "cpu_ns": ns(done.cpu),
                "outcomes": done.chosen.as_ref().map(|chosen| &chosen.outcomes),
                "seen_free_blocks": done.chosen.as_ref().map(|chosen| chosen.seen_free.0),
                "counters": report.counters,
                "before": before,
                "after": after,
            });
            writeln!(out, "{line}")?;
            return Ok(());
        }
        let on_lists = match done.on_lists.0 {
            0 => String::new(),
            n => format!(" (and {n} on processors' lists)"),
        };
        let gained = done.after.0 as i64 - done.before.0 as i64;
        writeln!(out, "before  {}", brief(before))?;
        writeln!(out, "after   {}", brief(after))?;
        let what = format!(
            "{gained:+} free blocks of {} asked for{}, by {}, in {}; cpu {}, {} pages moved; {}",
            done.asked.0,
            on_lists,
            done.way,
            show_duration(done.took),
            show_duration(done.cpu),
            done.moved_pages,
            describe(done.ended)
        );
        writeln!(out, "{}", mega_cli::text::wrapped("made    ", &what))?;
        if let Some(chosen) = &done.chosen {
            let each: Vec<_> = chosen.outcomes.iter().map(|(word, n)| format!("{n} {word}")).collect();
            let what = format!("{}; {} seen free right afterwards", each.join(", "), chosen.seen_free.0);
            writeln!(out, "{}", mega_cli::text::wrapped("chosen  ", &what))?;
        }
        Ok(())
    }

    fn say_plan(&self, planner: &str, plan: &Plan) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let moves = plan
            .choices
            .as_ref()
            .map(|choices| choices.iter().map(|c| u64::from(c.moves.0)).sum::<u64>());
        if self.args.json {
            let line = json!({
                "schema": 1,
                "kind": "compact",
                "dry_run": true,
                "planner": planner,
                "way": self.how.word(),
                "asked_blocks": plan.blocks.0,
                "moved_pages": moves,
                "choices": plan.choices,
            });
            writeln!(out, "{line}")?;
            return Ok(());
        }
        let size = Bytes(plan.blocks.0.saturating_mul(HUGE_PAGE_BYTES));
        let moved = moves.map_or(String::new(), |pages| format!(", {} to move", Bytes(pages * 4096)));
        let which = match (plan.choices.as_deref(), self.how) {
            (Some([first, .., last]), Way::Offline | Way::Chosen) => {
                format!("; from {} (best) to {}", first.hpfn, last.hpfn)
            }
            _ => "; the kernel selects the blocks".to_string(),
        };
        writeln!(
            out,
            "planner {planner} would make {} blocks ({size}){moved}{which}",
            plan.blocks.0
        )?;
        Ok(())
    }

    fn say_nothing(&self, planner: &str, state: &Fragmentation) -> Result<()> {
        self.say_wait(planner, state, "nothing to make")
    }

    fn say_held(&self, planner: &str, state: &Fragmentation) -> Result<()> {
        self.say_wait(planner, state, "backing off: recent passes freed nothing")
    }

    fn say_wait(&self, planner: &str, state: &Fragmentation, why: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.args.json {
            let line = json!({
                "schema": 1, "kind": "compact", "planner": planner, "asked_blocks": 0, "why": why, "before": state,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{}",
                mega_cli::text::wrapped("", &format!("planner {planner}: {why}; {}", brief(state)))
            )?;
        }
        Ok(())
    }
}

/// What is to be made.
struct Plan {
    blocks: Blocks,
    /// Which, best first; none where blocks cannot be seen.
    choices: Option<Vec<Choice>>,
}

/// A line on a terminal, five times a second.
struct Progress<'a> {
    root: &'a ProcRoot,
    blocks: u64,
    before: u64,
    began: Instant,
    shown: RefCell<Option<Instant>>,
}

impl<'a> Progress<'a> {
    fn new(root: &'a ProcRoot, blocks: Blocks, json: bool) -> Self {
        let began = Instant::now();
        let quiet = json || !std::io::stderr().is_terminal();
        Self {
            root,
            // Nothing to show is nothing of nothing.
            blocks: if quiet { 0 } else { blocks.0 },
            before: free(root),
            began,
            shown: RefCell::new(Some(began)),
        }
    }

    fn show(&self) {
        let due = self
            .shown
            .borrow()
            .is_none_or(|at| at.elapsed() > Duration::from_millis(200));
        if self.blocks == 0 || !due {
            return;
        }
        *self.shown.borrow_mut() = Some(Instant::now());
        let made = free(self.root).saturating_sub(self.before);
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[2K{made} of {} blocks, {}",
            self.blocks,
            show_duration(self.began.elapsed())
        );
    }

    fn clear(&self) {
        if self.blocks > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

fn free(root: &ProcRoot) -> u64 {
    buddyinfo::read(root).map_or(0, |free| free.free_blocks().0)
}

fn describe(ended: Ended) -> &'static str {
    match ended {
        Ended::Amount => "target reached",
        Ended::Time => "time limit reached",
        Ended::Through => "all memory scanned",
        Ended::Stopped => "stopped",
        Ended::Refused => "refused",
    }
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
