//! Running one experiment from the command line: what was asked for, with its options, becomes a plan; it is run with its progress
//! shown, and its results are kept in a folder.

pub mod stop;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use mega_lab::experiment::{self, tables};
use mega_lab::measure::machine;
use mega_lab::prepare::condition::Condition;
use mega_lab::program::command::{CommandLine, Source};
use mega_lab::report::folder::{self, Folder};
use mega_lab::result::{About, Record, Settings, SCHEMA};
use mega_lab::run::{CasePlan, Options, Plan, Progress};
use mega_lab::stats::exclusion::rule;
use mega_lab::variant::Variant;
use mega_linux::knobs::STATE_FOLDER;
use mega_linux::proc::{meminfo, ProcRoot};

use crate::args::{BenchArgs, BenchOptions};
use mega_cli::exit::Failure;
use mega_cli::hand_over;
use mega_cli::mosaic::target::library;
use mega_cli::settings::{open_knobs, require};

/// One experiment, ready to be run.
#[derive(Debug)]
pub struct Asked {
    about: About,
    plan: Plan,
    published: Vec<mega_lab::result::Published>,
    /// What the page says after the question, from the run's figures.
    answers: Option<fn(&Record) -> Option<String>>,
}

impl Asked {
    /// A plan of our own.
    pub fn of_plan(about: About, plan: Plan) -> Self {
        Self {
            about,
            plan,
            published: Vec::new(),
            answers: None,
        }
    }

    /// The same with answers to its question.
    pub fn answered_by(mut self, answers: fn(&Record) -> Option<String>) -> Self {
        self.answers = Some(answers);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// The same under a condition.
    pub fn under(mut self, condition: Condition) -> Self {
        self.plan.cases.iter_mut().for_each(|case| case.condition = condition);
        self
    }

    /// The same with its baseline alone.
    pub fn baseline(mut self) -> Self {
        self.plan.variants.truncate(1);
        self.published.clear();
        self
    }
}

/// What a run left.
#[derive(Debug)]
pub struct Ran {
    /// All of it.
    pub record: Record,
    /// The report's path.
    pub report: PathBuf,
}

impl Ran {
    /// # Errors
    /// When the user has stopped it. What was measured is kept and marked; the status says that it is not all.
    pub fn whole(&self) -> Result<()> {
        anyhow::ensure!(
            self.record.ended_early.is_none(),
            "stopped before its end; what was measured is in {}",
            self.report.display()
        );
        Ok(())
    }
}

/// An experiment of the catalogue with the options of the command line.
pub fn named(name: &str, options: &BenchOptions) -> Result<Asked> {
    let found = experiment::find(name)
        .ok_or_else(|| Failure::usage(format!("no experiment '{name}' (`mega bench list` names them)")))?;
    let memory = meminfo::read(&ProcRoot::default()).context("cannot read how much memory there is")?;
    let scale = options
        .scale
        .unwrap_or_else(|| found.fitting_scale(memory.total_bytes.unwrap_or(0)));
    let setup = found.setup(scale);
    let mut plan = setup.plan;
    if let Some(interval) = options.interval {
        plan.manager_options = vec!["--interval".to_string(), format!("{}ms", interval.as_millis())];
    }
    let about = About {
        name: found.name.to_string(),
        title: found.title.to_string(),
        question: found.question.to_string(),
        source: found.source.map(str::to_string),
        scale: setup.size,
        differs: found.differs.map(|differs| match found.elsewhere {
            Some(elsewhere) => format!("{differs}. Elsewhere: {elsewhere}"),
            None => differs.to_string(),
        }),
    };
    Ok(Asked {
        about,
        plan,
        published: setup.published,
        answers: None,
    })
}

/// A command line of the user's.
pub fn command(args: &BenchArgs) -> Result<Asked> {
    let mut program = CommandLine::new(args.command.clone());
    program.needs.memory_bytes = args.memory.0;
    if let Some(regex) = &args.metric {
        let printed =
            mega_lab::program::command::Printed::rate(regex).map_err(|e| Failure::usage(format!("--metric: {e}")))?;
        program.source = Source::Printed(printed);
    }
    let words: Vec<String> = args
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let first = std::path::Path::new(&words[0])
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let main = match args.metric.is_some() {
        true => ["ops_per_s", "elapsed_ns", "peak_rss_bytes", "peak_huge_bytes"].as_slice(),
        false => ["elapsed_ns", "peak_rss_bytes", "peak_huge_bytes"].as_slice(),
    };
    let variants = ["base", "thp-always", "mega"].map(|name| name.parse::<Variant>());
    let mut plan = Plan {
        cases: vec![CasePlan {
            name: first.unwrap_or_else(|| "command".to_string()),
            program: Box::new(program),
            condition: Condition::Unfragmented,
        }],
        variants: variants.into_iter().collect::<Result<_, _>>()?,
        manager_options: Vec::new(),
        prefault: true,
        faults: args.faults,
        main: main.iter().map(ToString::to_string).collect(),
        record: None,
    };
    if let Some(interval) = args.common.interval {
        plan.manager_options = vec!["--interval".to_string(), format!("{}ms", interval.as_millis())];
    }
    adjust(&mut plan, args)?;
    let about = About {
        name: "run".to_string(),
        title: words.join(" "),
        question: "What do huge pages do to this program?".to_string(),
        source: None,
        scale: None,
        differs: None,
    };
    Ok(Asked {
        about,
        plan,
        published: Vec::new(),
        answers: None,
    })
}

impl Asked {
    /// Variants, condition and what is measured as the command line wants them.
    pub fn adjusted(mut self, args: &BenchArgs) -> Result<Self> {
        adjust(&mut self.plan, args)?;
        // The paper's figures belong to the paper's variants and conditions, where ours still has them.
        let variants: Vec<String> = self.plan.variants.iter().map(ToString::to_string).collect();
        for published in &mut self.published {
            published.variant = published.variant.take().filter(|name| variants.contains(name));
        }
        Ok(self)
    }
}

fn adjust(plan: &mut Plan, args: &BenchArgs) -> Result<()> {
    if !args.variants.is_empty() {
        let parsed: Result<Vec<Variant>, _> = args.variants.iter().map(|name| name.parse()).collect();
        plan.variants = parsed.map_err(Failure::usage)?;
    }
    if let (true, Some(first)) = (args.aa, plan.variants.first()) {
        let again = Variant {
            label: Some("again".to_string()),
            ..first.clone()
        };
        plan.variants.push(again);
    }
    if let Some(condition) = &args.condition {
        let condition: Condition = condition.parse().map_err(Failure::usage)?;
        plan.cases.iter_mut().for_each(|case| case.condition = condition);
    }
    plan.faults |= args.faults;
    if let Some(folder) = &args.record {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        plan.variants = vec!["base".parse().map_err(Failure::usage)?];
        plan.record = Some(folder.clone());
    }
    Ok(())
}

/// How something is run that begins now.
pub fn settings(seed: u64, rounds: usize, program_cpu: Option<usize>) -> Settings {
    Settings {
        version: env!("CARGO_PKG_VERSION").to_string(),
        commit: option_env!("MEGA_COMMIT").map(str::to_string),
        began_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        seconds: 0.0,
        rounds,
        seed,
        program_cpu,
        command: command_line(),
        exclusion_rule: Some(rule().version),
    }
}

/// Runs it.
pub fn run(asked: &Asked, args: &BenchOptions, rounds: usize) -> Result<Ran> {
    let mega = hand_over::mega()?;
    require(false).context("experiments set the machine up and manage programs")?;
    // What a lab or a manager that was killed left behind is put back first.
    open_knobs()?
        .recover()
        .context("cannot put back what an earlier run left behind")?;
    let root = ProcRoot::default();
    let machine = machine::describe(&root);
    let (program_cpu, client_cpu) = processors(args, machine.processors);
    let options = Options {
        mega,
        lab: std::env::current_exe().context("cannot find our own program")?,
        library: library().map_err(|error| error.to_string()),
        state: STATE_FOLDER.into(),
        rounds,
        seed: args.seed,
        program_cpu,
        client_cpu,
        stop: stop::flag()?,
    };
    let mut record = Record {
        schema: SCHEMA,
        kind: "bench".to_string(),
        experiment: asked.about.clone(),
        machine,
        settings: settings(args.seed, rounds, program_cpu),
        metrics: asked.plan.metrics(),
        cases: asked.plan.case_infos(),
        variants: asked.plan.variants.iter().map(|variant| variant.info(&root)).collect(),
        runs: Vec::new(),
        published: asked.published.clone(),
        ended_early: None,
    };
    let folder = Folder::create(&args.output, &asked.about.name, record.settings.began_unix_s)?;
    let mut lines = Lines::new(args.quiet);
    lines.say(&format!(
        "{}: {} runs{}; results in {}",
        asked.about.name,
        asked.plan.cases.len() * asked.plan.variants.len() * rounds,
        // How long a command of the user's takes is not known.
        match asked.name() {
            "run" => String::new(),
            _ => format!(", about {} min", (asked.plan.seconds(rounds) / 60.0).ceil()),
        },
        folder.path().display()
    ));
    // A disk that is full is said once; the experiment goes on, its table is still worth having.
    let mut saved = Ok(());
    mega_lab::run::run(&asked.plan, &options, &mut record, |progress| match progress {
        Progress::Begins {
            number,
            of,
            case,
            variant,
            round,
        } => {
            lines.begin(&format!("[{}/{of}] round {}: {case}, {variant}", number + 1, round + 1));
        }
        Progress::Phase(phase) => lines.phase(phase),
        Progress::Ended(so_far) => {
            lines.end(so_far);
            if let (true, Err(error)) = (saved.is_ok(), folder.save(so_far)) {
                lines.say(&format!("mega: {error}"));
                saved = Err(error);
            }
        }
    });
    if let Some(answers) = asked.answers.and_then(|answers| answers(&record)) {
        record.experiment.question = format!("{} {answers}", record.experiment.question);
    }
    folder.save(&record)?;
    folder.save_table(&tables::beside(&record))?;
    if let Some(to) = &args.keep {
        folder::keep(to, &record.experiment.name, &record)?;
    }
    let report = folder.save_report(&record)?;
    Ok(Ran { record, report })
}

/// The program on one processor, everybody else on the next; nobody is bound where there is one, or the user does not want it.
fn processors(args: &BenchOptions, there: usize) -> (Option<usize>, Option<usize>) {
    match there {
        _ if args.no_pin => (None, None),
        0 | 1 => (None, None),
        _ => (Some(0), Some(1)),
    }
}

/// The command line as it can be typed again, without the folders for results, which are one machine's, and whether progress is shown.
pub fn command_line() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    typed(words.skip(1))
}

const FOLDERS: [&str; 3] = ["-o", "--output", "--keep"];

fn typed(words: impl Iterator<Item = String>) -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let mut typed = vec!["mega".to_string()];
    let (mut is_folder, mut is_ours) = (false, true);
    for word in words {
        // What follows is the measured command's.
        is_ours &= word != "--";
        let was_folder = std::mem::replace(&mut is_folder, is_ours && FOLDERS.contains(&word.as_str()));
        let has_folder = is_ours && (word.starts_with("--output=") || word.starts_with("--keep="));
        let is_quiet = is_ours && (word == "-q" || word == "--quiet");
        if !(was_folder || is_folder || has_folder || is_quiet) {
            typed.push(quoted(word));
        }
    }
    typed.join(" ")
}

/// Progress on stderr: one line a run, rewritten on a terminal while the run goes on.
struct Lines {
    quiet: bool,
    terminal: bool,
    begun: String,
}

impl Lines {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            begun: String::new(),
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    fn begin(&mut self, text: &str) {
        self.begun = text.to_string();
        self.rewrite("");
    }

    fn phase(&self, phase: &str) {
        self.rewrite(phase);
    }

    fn rewrite(&self, more: &str) {
        if self.terminal && !self.quiet {
            eprint!("\r\x1b[K{} {more}", self.begun);
            let _ = std::io::stderr().flush();
        }
    }

    fn end(&self, so_far: &Record) {
        let Some(run) = so_far.runs.last().filter(|_| !self.quiet) else {
            return;
        };
        use mega_lab::result::Outcome;
        let how = match &run.outcome {
            Outcome::Done if run.noise.doubtful.is_empty() => format!("done in {:.0} s", run.seconds),
            Outcome::Done => format!(
                "done in {:.0} s, doubtful: {}",
                run.seconds,
                run.noise.doubtful.join("; ")
            ),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{start}{}: {how}", self.begun);
    }
}

/// A time for people, to the minute.
pub fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

pub fn memory_bytes() -> Result<u64> {
    let info = meminfo::read(&ProcRoot::default()).context("cannot read how much memory there is")?;
    info.total_bytes
        .context("/proc/meminfo does not say how much memory there is")
}

/// What could not be run does not keep the others from it, but it is not success either.
pub fn finish(failed: &[&str]) -> Result<()> {
    anyhow::ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_without_the_folder_for_results_but_the_measured_commands_own_options_stay() {
        let of = |words: &str| typed(words.split(' ').map(str::to_owned));
        assert_eq!(of("bench gups -o /x/y --rounds 6"), "mega bench gups --rounds 6");
        assert_eq!(of("bench gups --output=/x -q"), "mega bench gups");
        assert_eq!(of("bench gups --keep /x --keep=/y --aa"), "mega bench gups --aa");
        assert_eq!(
            of("bench run -o /x -- cc -o a.out a$b"),
            "mega bench run -- cc -o a.out 'a$b'"
        );
    }
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_first_variant_is_run_again_where_that_is_asked_for() {
        let words = ["mega", "bench", "run", "--variants=base,mega", "--aa", "--", "true"];
        let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not bench");
        };
        let variants = command(&args).unwrap().plan.variants;
        let names: Vec<String> = variants.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["base", "mega", "base#again"]);
    }

    #[test]
    fn what_is_shown_first_of_a_command_is_what_it_measures() {
        for (metric, first) in [(None, "elapsed_ns"), (Some("--metric=x=(.)"), "ops_per_s")] {
            let words = ["mega", "bench", "run"].into_iter().chain(metric).chain(["--", "true"]);
            let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("not bench");
            };
            let plan = command(&args).unwrap().plan;
            assert_eq!(plan.main[0], first);
            let all = plan.metrics();
            let is_known = |name: &String| all.iter().any(|metric| metric.name == *name);
            assert!(plan.main.iter().all(is_known), "{:?}", plan.main);
        }
    }
}
