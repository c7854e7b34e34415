//! `mega mosaic explore`: which part of a program's memory pays on large pages?
//!
//! The program runs once on base pages, which shows how much memory its pools have; then under each layout of the [`plan`], in rounds; run time is
//! fitted as a function of the layout ([`model`]); the cheapest layout within 1 % of the best that the model knows is recommended, and measured
//! beside base pages and large pages everywhere, which it was not chosen by.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{ensure, Context, Result};
use mega_core::units::Bytes;
use mega_lab::stats::{paired, Paired};
use memomania_layout::layout::Layout;
use memomania_layout::page::Kind;
use memomania_layout::settings::{Fallback, Partial};

use self::measure::Runner;
use self::model::{cheapest, Form, Model};
use self::plan::{Plan, Set};
use crate::args::ExploreArgs;
use mega_cli::mosaic::{note, reserve, target, Reserve};
use mega_cli::signals::stop_on_signals;

mod html;
mod measure;
mod model;
mod plan;
mod text;

/// How much slower than the best the cheapest layout may be.
const SLACK: f64 = 0.01;

/// What was found.
pub struct Found {
    pub command: Vec<String>,
    pub plan: Plan,
    pub rounds: usize,
    /// Of heap and anonymous mappings.
    pub in_use: [usize; 2],
    /// Seconds of each layout of the plan in each round.
    pub times: Vec<Vec<f64>>,
    /// Seconds of each layout of the plan: the mean of the quicker half of its rounds.
    pub seconds: Vec<f64>,
    /// Each layout against base pages.
    pub against_base: Vec<Paired>,
    pub models: Vec<Model>,
    /// `None` without a model of the windows.
    pub recommended: Option<Recommended>,
}

/// A layout, and how it did in runs of its own.
pub struct Recommended {
    pub set: Set,
    /// Seconds by the model.
    pub predicted: f64,
    pub seconds: f64,
    pub against_base: Paired,
    pub all_seconds: f64,
    pub all_against_base: Paired,
}

/// Explores, and prints what was found.
pub fn run(args: &ExploreArgs) -> Result<()> {
    ensure!(
        rustix::param::page_size() == memomania_layout::page::BASE,
        "impossible here: the kernel's pages are not of 4K"
    );
    if let Some(path) = &args.html {
        // Rather now than after all runs.
        std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let kind = Kind::from(args.pages);
    let library = target::library()?;
    target::check(args.command.first().map_or(Path::new(""), Path::new))?;
    let settings = Partial {
        fallback: Some(Fallback::Smaller),
        inherit: args.no_inherit.then_some(false),
        ..Partial::default()
    };
    let runner = Runner {
        command: &args.command,
        library,
        settings,
        shows_output: args.show_output,
        stop: stop_on_signals()?,
    };
    let first = runner.run([Layout::BASE; 2])?;
    let in_use = first.in_use();
    let Some(plan) = Plan::new(kind, in_use, args.windows) else {
        anyhow::bail!(
            "nothing to explore: the program's pools have {} and {}, less than a page of {kind}{}",
            Bytes(in_use[0] as u64),
            Bytes(in_use[1] as u64),
            if first.processes.is_empty() {
                " (no process reported)"
            } else {
                ""
            }
        );
    };
    let mut reserved = reserve_for(&plan, in_use, args.reserve.as_ref())?;
    let found = measure(args, &runner, plan, in_use, first.seconds);
    reserved.put_back();
    let found = found?;
    let out = match args.json {
        true => serde_json::to_string_pretty(&text::json(&found))?,
        false => text::text(&found),
    };
    writeln!(std::io::stdout(), "{}", out.trim_end())?;
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&found)).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("the page is {}", path.display()));
    }
    Ok(())
}

/// hugetlb pages for the layout with most of them.
fn reserve_for(plan: &Plan, in_use: [usize; 2], reserve: Option<&Reserve>) -> Result<reserve::Reserved> {
    let kind = plan.kind;
    let [heap, anon] = plan.layouts(plan.all());
    let partial = Partial {
        heap: Some(heap),
        anon: Some(anon),
        fallback: Some(Fallback::Fail),
        ..Partial::default()
    };
    if !kind.is_hugetlb() {
        reserve::check_transparent(&partial)?;
        return reserve::prepare(&partial, None);
    }
    // A quarter more than were in use, for what begins in the middle of a page; all processes at once are the user's to know.
    let page = kind.bytes();
    let wanted = in_use
        .iter()
        .map(|bytes| (bytes + bytes / 4).div_ceil(page) * page + page);
    let ours = Reserve(vec![(kind, Bytes(wanted.sum::<usize>() as u64))]);
    let reserve = reserve.filter(|reserve| !reserve.0.is_empty()).unwrap_or(&ours);
    reserve::prepare(&partial, Some(reserve))
}

fn measure(args: &ExploreArgs, runner: &Runner<'_>, plan: Plan, in_use: [usize; 2], first: f64) -> Result<Found> {
    let rounds = args.rounds.max(1);
    let count = plan.sets.len();
    // Whatever has to be told apart in the end needs so many.
    let last_rounds = rounds.max(mega_lab::stats::ROUNDS_TO_TELL);
    let seconds = first * (rounds * count + 3 * last_rounds) as f64;
    note(&format!(
        "{count} layouts of {} windows, {rounds} rounds: {} runs, about {}",
        plan.windows.len(),
        rounds * count + 3 * last_rounds,
        mega_core::units::show_duration(std::time::Duration::from_secs_f64(seconds.ceil()))
    ));
    let progress = Progress::new(rounds * count + 3 * last_rounds);
    let times = in_rounds(runner, &plan, &plan.sets, rounds, &progress)?;
    let seconds = quicker(&times);
    let against_base = times.iter().map(|own| against(&times[0], own)).collect();
    let measured: Vec<(Set, f64)> = plan.sets.iter().copied().zip(seconds.iter().copied()).collect();
    let models: Vec<Model> = Form::ALL
        .into_iter()
        .filter_map(|form| Model::fit(form, &plan, &measured))
        .collect();
    let windows = models.iter().find(|model| model.form == Form::Windows);
    let recommended = match windows {
        Some(model) => {
            let set = cheapest(&plan, model, SLACK);
            let times = in_rounds(runner, &plan, &[0, plan.all(), set], last_rounds, &progress)?;
            let seconds = quicker(&times);
            Some(Recommended {
                set,
                predicted: model.predict(&plan, set),
                seconds: seconds[2],
                against_base: against(&times[0], &times[2]),
                all_seconds: seconds[1],
                all_against_base: against(&times[0], &times[1]),
            })
        }
        None => None,
    };
    progress.end();
    Ok(Found {
        command: args
            .command
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect(),
        rounds,
        in_use,
        times,
        seconds,
        against_base,
        models,
        recommended,
        plan,
    })
}

/// Seconds of each layout in each round. Each round begins with another layout, so that none is always the first.
fn in_rounds(
    runner: &Runner<'_>,
    plan: &Plan,
    sets: &[Set],
    rounds: usize,
    progress: &Progress,
) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(rounds); sets.len()];
    for round in 0..rounds {
        for step in 0..sets.len() {
            let index = (step + round * sets.len() / rounds) % sets.len();
            times[index].push(runner.run(plan.layouts(sets[index]))?.seconds);
            progress.step();
        }
    }
    Ok(times)
}

/// One time for each layout: the mean of the quicker half of its rounds. What others do to the machine only ever adds time, and for a while at a time, so that a
/// median of few rounds is that of a disturbed machine (Chen and Revels, "Robust benchmarking in noisy environments", 2016, take the least). On a busy machine models
/// fitted to this predicted best, before the least and the median (docs/memomania.md). Verdicts about two layouts are taken from pairs ([`against`]).
fn quicker(times: &[Vec<f64>]) -> Vec<f64> {
    let of = |own: &Vec<f64>| {
        let mut own = own.clone();
        own.sort_by(f64::total_cmp);
        own.truncate(own.len().div_ceil(2));
        own.iter().sum::<f64>() / own.len() as f64
    };
    times.iter().map(of).collect()
}

fn against(base: &[f64], own: &[f64]) -> Paired {
    let numbered = |times: &[f64]| times.iter().copied().enumerate().collect::<Vec<_>>();
    paired(&numbered(base), &numbered(own))
}

/// How far it is, on a terminal.
struct Progress {
    done: std::cell::Cell<usize>,
    all: usize,
    shown: bool,
}

impl Progress {
    fn new(all: usize) -> Self {
        Self {
            done: 0.into(),
            all,
            shown: std::io::stderr().is_terminal(),
        }
    }

    fn step(&self) {
        self.done.set(self.done.get() + 1);
        if self.shown {
            let _ = write!(std::io::stderr(), "\r{} of {} runs", self.done.get(), self.all);
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rounds_do_not_count() {
        let times = [vec![2.0, 4.0, 2.5], vec![1.5, 2.0, 1.0], vec![3.0, 1.5, 1.5, 9.0, 2.25]];
        assert_eq!(quicker(&times), [2.25, 1.25, 1.75]);
        assert_eq!(quicker(&[]), Vec::<f64>::new());
    }
}
