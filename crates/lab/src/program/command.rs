//! Any command line, measured by wall time or by a number that it prints.

use std::ffi::OsString;
use std::process::Command;

use regex::Regex;

use super::support::{find, tail, time_ns, Session};
use super::task::Task;
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::result::{Better, Metric, Unit};
use crate::timing::clock::now_ns;

/// How much of the end of its output is searched for a number.
const SEARCHED_BYTES: u64 = 1 << 20;

/// Where its figure comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Wall time, from its first instruction to its exit.
    WallTime,
    /// A number that it prints.
    Printed(Printed),
}

/// A number in the last megabyte of stdout, or else of stderr.
#[derive(Debug, Clone)]
pub struct Printed {
    /// Its first group is the number. Of several matches the last counts.
    pub regex: Regex,
    /// Name of the metric: `ops_per_s`.
    pub name: String,
    /// Label.
    pub label: String,
    /// Unit of the metric.
    pub unit: Unit,
    /// Base units per printed unit: 1e6 when milliseconds are printed and the unit is ns.
    pub factor: f64,
    /// Which direction is better.
    pub better: Better,
}

impl Printed {
    /// A rate, higher is better, that `regex` finds.
    ///
    /// # Errors
    /// When it is not a regular expression, or has no group.
    pub fn rate(regex: &str) -> Result<Self, String> {
        let regex = Regex::new(regex).map_err(|e| e.to_string())?;
        if regex.captures_len() < 2 {
            return Err(format!("{regex} has no group in parentheses around the number"));
        }
        Ok(Self {
            regex,
            name: "ops_per_s".into(),
            label: "operations/s".into(),
            unit: Unit::PerSecond,
            factor: 1.0,
            better: Better::Higher,
        })
    }

    /// The number in `text`, in base units.
    fn find(&self, text: &str) -> Option<Result<f64, String>> {
        let found = self.regex.captures_iter(text).last()?;
        let number = found.get(1).map_or("", |group| group.as_str());
        let value = number.trim().parse::<f64>().ok().filter(|v| v.is_finite());
        Some(
            value
                .map(|v| v * self.factor)
                .ok_or_else(|| format!("{number:?} is not a number")),
        )
    }
}

/// A command line, in a process group of its own.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// Short name, for the report.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// What it measures.
    pub source: Source,
    /// What it needs.
    pub needs: Needs,
    /// Estimated time, in seconds.
    pub seconds: f64,
}

impl CommandLine {
    /// A command line whose wall time is measured, with unknown needs.
    pub fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
        let program = argv.first().map(std::path::Path::new).and_then(|p| p.file_name());
        Self {
            name: program.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
            argv,
            source: Source::WallTime,
            // Its memory is unknown; this much is prefaulted for it.
            needs: Needs {
                memory_bytes: 1 << 30,
                ..Needs::default()
            },
            seconds: 60.0,
        }
    }
}

/// Runs `argv` to its end, watched; returns its wall time in ns and the ended task.
///
/// The user's own commands keep the caller's folder (`own_folder`): their relative paths mean what they meant where they were typed. Ours run
/// in the scratch folder.
pub(super) fn run_to_end(
    session: &mut Session,
    argv: &[OsString],
    own_folder: bool,
) -> Result<(u64, Task), ProgramError> {
    let launch = session.launch;
    let folder: fn(&mut Command) -> &mut Command = match own_folder {
        true => |command| command.current_dir("."),
        false => |command| command,
    };
    let mut task = Task::start_stopped(session, "command", argv, launch.program_cpu, &launch.own, folder)?;
    session.watch.process(task.pid())?;
    session.phase("run");
    let start = now_ns();
    task.go()?;
    task.wait(session, |_, _| Ok(()))?;
    Ok((now_ns() - start, task))
}

impl Program for CommandLine {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn describe(&self) -> String {
        let words = self.argv.iter().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    fn metrics(&self) -> Vec<Metric> {
        match &self.source {
            Source::WallTime => vec![time_ns()],
            Source::Printed(p) => vec![
                Metric {
                    name: p.name.clone(),
                    label: p.label.clone(),
                    unit: p.unit,
                    better: p.better,
                    main: true,
                },
                super::support::detail(time_ns()),
            ],
        }
    }

    fn needs(&self) -> Needs {
        self.needs.clone()
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn ready(&self) -> Result<(), ProgramError> {
        let program = self
            .argv
            .first()
            .map(|a| a.to_string_lossy().into_owned())
            .unwrap_or_default();
        match find(&program) {
            Some(_) => Ok(()),
            None => Err(ProgramError::Start {
                program,
                why: "no such program in PATH".into(),
            }),
        }
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let mut session = Session::new(self.name(), launch, watch);
        let (wall_ns, task) = run_to_end(&mut session, &self.argv, true)?;
        let mut figures = Figures::default();
        figures.values.insert("elapsed_ns".into(), wall_ns as f64);
        if let Source::Printed(printed) = &self.source {
            let texts = [&task.stdout, &task.stderr].map(|path| tail(path, SEARCHED_BYTES));
            let no_figure = |why| ProgramError::NoFigure {
                program: self.name(),
                why,
            };
            let value = texts.iter().find_map(|text| printed.find(text));
            let value = value.ok_or_else(|| no_figure(format!("no output matches {}", printed.regex)))?;
            figures.values.insert(printed.name.clone(), value.map_err(no_figure)?);
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_counts_and_comes_in_base_units() {
        let printed = Printed {
            factor: 1e6,
            ..Printed::rate(r"took ([\d.]+) ms").unwrap()
        };
        assert_eq!(printed.find("took 1 ms\ntook 2.5 ms\n"), Some(Ok(2.5e6)));
        assert_eq!(printed.find("nothing"), None);
        assert_eq!(
            printed.find("took 1.2.3 ms"),
            Some(Err("\"1.2.3\" is not a number".into()))
        );
        assert!(Printed::rate("no group")
            .unwrap_err()
            .contains("no group in parentheses"));
        assert!(Printed::rate("(").is_err());
    }
}
