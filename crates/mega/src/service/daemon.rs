//! The daemon: keeps the loops of the configuration in force, reads it again when asked, answers `mega status`, puts everything back.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, Context, Result};
use mega_cli::exit::tell;
use mega_cli::signals::{off_signal, stop_on, stopped};
use mega_linux::knobs::{Claims, STATE_FOLDER};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use serde_json::{json, Value as Json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::config::Config;
use super::control::{self, Control, Order};
use super::journal::Journal;
use super::loops::Loops;
use super::metrics::totals::Totals;
use super::metrics::{InForce, Metrics};
use super::notify::Notify;
use super::read::Rule;
use super::watcher::Tell;
use super::Source;

/// Beside the claims.
const LOCK: &str = "daemon.lock";
const SOCKET: &str = "daemon.sock";
/// The longest time until the end of a loop is noticed.
const TICK: Duration = Duration::from_secs(1);

/// Runs until a signal ends it.
///
/// # Errors
/// The configuration is wrong, another daemon runs, or processes cannot be managed here.
pub fn run(source: &Source) -> Result<()> {
    // Before anything of ours shows.
    let signals = Signals::catch()?;
    let config = read(source).map_err(|_| mega_cli::exit::Failure::said())?;
    let folder = Path::new(STATE_FOLDER);
    // Makes the folder, with its rights.
    let claims = Claims::open(folder).context("cannot open the list of managed processes")?;
    let lock = lock(folder)?;
    let control = Control::open(&folder.join(SOCKET), &config.group()).context("cannot listen for `mega status`")?;
    let notify = Arc::new(Notify::from_environment());
    let tell = Tell {
        totals: Totals::default(),
        journal: open_journal(&config),
    };
    let loops = Loops::start(&config, &notify, &tell)?;
    let in_force = InForce {
        matching: Arc::clone(&loops.matching),
        book: loops.book.clone(),
        interval: config.interval(),
        dry_run: config.dry_run(),
        reloads: 0,
        refused: 0,
        is_refused: false,
        began: SystemTime::now(),
    };
    let metrics = match Metrics::start(folder, &config.metrics(), in_force, &tell.totals) {
        Ok(metrics) => metrics,
        Err(error) => return loops.stop().and(Err(error)),
    };
    let mut daemon = Daemon {
        config,
        loops,
        notify,
        claims,
        tell,
        metrics,
        began: Instant::now(),
        reloads: 0,
        refused: Vec::new(),
    };
    let version = env!("CARGO_PKG_VERSION");
    daemon.record("daemon-start", &json!({"pid": std::process::id(), "version": version}));
    daemon.say_ready();
    let ended = daemon.serve(source, &signals, control);
    daemon.notify.tell("STOPPING=1");
    drop(daemon.metrics);
    let stopped = daemon.loops.stop();
    if let Some(journal) = &daemon.tell.journal {
        journal.say("daemon-stop", &json!({"pid": std::process::id()}));
    }
    drop(lock);
    ended.and(stopped)
}

/// The process of the daemon that runs, if any.
///
/// # Errors
/// It cannot be known.
pub fn running() -> Result<Option<u32>> {
    let path = Path::new(STATE_FOLDER).join(LOCK);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text.trim().parse().ok())
        }
        Err(error) => Err(error).with_context(|| format!("cannot ask who locks {}", path.display())),
    }
}

/// What the running daemon says of itself.
///
/// # Errors
/// None runs, or it is not ours to ask.
pub fn ask() -> Result<Json> {
    control::ask_status(&Path::new(STATE_FOLDER).join(SOCKET))
}

struct Signals {
    stop: OwnedFd,
    reload: OwnedFd,
}

impl Signals {
    fn catch() -> Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).context("cannot make a pipe");
        let ((stop, ended), (reload, hung_up)) = (pipe()?, pipe()?);
        for signal in [SIGTERM, SIGINT, off_signal().as_raw()] {
            stop_on(signal, &ended)?;
        }
        stop_on(SIGHUP, &hung_up)?;
        Ok(Self { stop, reload })
    }
}

fn read(source: &Source) -> Result<Config, Vec<String>> {
    let said = |problems: &[super::place::Problem], kind: &str| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("{kind}{problem}")).collect();
        lines.iter().for_each(|line| tell(&format!("mega: {line}")));
        lines
    };
    match Config::load(source) {
        Ok(config) => {
            said(&config.warnings, "warning: ");
            Ok(config)
        }
        Err(problems) => Err(said(&problems, "")),
    }
}

/// Held until we end, by whatever means.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let open = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    let mut file = open.with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(file)
        }
        Err(Errno::WOULDBLOCK) => {
            let mut other = String::new();
            file.read_to_string(&mut other)?;
            bail!("a daemon runs already: process {}", other.trim());
        }
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Without one, managing goes on.
fn open_journal(config: &Config) -> Option<Arc<Journal>> {
    let (path, max) = config.journal()?;
    match Journal::open(&path, max) {
        Ok(journal) => Some(Arc::new(journal)),
        Err(error) => {
            tell(&format!("mega: {error:#}; going on without it"));
            None
        }
    }
}

struct Daemon {
    config: Config,
    loops: Loops,
    notify: Arc<Notify>,
    claims: Claims,
    tell: Tell,
    metrics: Metrics,
    began: Instant,
    reloads: u64,
    /// Why the last reload was refused.
    refused: Vec<String>,
}

impl Daemon {
    fn say_ready(&self) {
        let (rules, loops) = (self.config.rules.len(), self.loops.each().count());
        let text = format!("{rules} rules in {} files, {loops} loops", self.config.files.len());
        tell(&format!("mega: in force: {text}"));
        self.notify.tell(&format!("READY=1\nSTATUS={text}"));
    }

    fn serve(&mut self, source: &Source, signals: &Signals, mut control: Control) -> Result<()> {
        loop {
            let mut fds = vec![
                PollFd::from_borrowed_fd(signals.stop.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(signals.reload.as_fd(), PollFlags::IN),
            ];
            fds.extend(control.waits_for());
            let wait = if control.has_more() { Duration::ZERO } else { TICK };
            match poll(&mut fds, Some(&Timespec::try_from(wait).unwrap_or_default())) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait"),
            }
            let reload = !fds[1].revents().is_empty();
            if stopped(&signals.stop, Duration::ZERO) {
                return Ok(());
            }
            if reload {
                // Several requests at once are one.
                while rustix::io::read(&signals.reload, &mut [0u8; 64][..]).is_ok_and(|read| read > 0) {}
                self.reload(source)?;
                control.admit(&self.config.group());
            }
            let mut failed = Ok(());
            let mut has_reloaded = false;
            control.turn(&mut |order| match order {
                Order::Status => self.status(),
                Order::Reload => {
                    failed = self.reload(source);
                    has_reloaded = true;
                    json!({"accepted": self.refused.is_empty(), "mistakes": self.refused})
                }
            });
            failed?;
            if has_reloaded {
                control.admit(&self.config.group());
            }
            if self.loops.any_ended() {
                bail!("a loop has ended by itself");
            }
            // Without a loop there is no scan that could.
            if self.loops.each().next().is_none() {
                self.notify.ping();
            }
        }
    }

    fn record(&self, event: &str, fields: &Json) {
        if let Some(journal) = &self.tell.journal {
            journal.say(event, fields);
        }
    }

    /// A configuration that is wrong, or that cannot be carried out, is refused; the old one stays in force.
    fn reload(&mut self, source: &Source) -> Result<()> {
        self.notify.reloading();
        match read(source) {
            Ok(config) => self.replace(config)?,
            Err(lines) => {
                tell("mega: the new configuration is refused; the old one stays in force");
                self.refused = lines;
            }
        }
        let is_refused = !self.refused.is_empty();
        let result = if is_refused { "refused" } else { "accepted" };
        self.record("reload", &json!({"result": result, "why": self.refused.first()}));
        let (matching, book) = (Arc::clone(&self.loops.matching), self.loops.book.clone());
        let (interval, dry_run, reloads) = (self.config.interval(), self.config.dry_run(), self.reloads);
        self.metrics.update(|of| {
            of.refused += u64::from(is_refused);
            (of.matching, of.book, of.is_refused) = (matching, book, is_refused);
            (of.interval, of.dry_run, of.reloads) = (interval, dry_run, reloads);
        });
        self.say_ready();
        Ok(())
    }

    fn replace(&mut self, config: Config) -> Result<()> {
        if let Err(error) = self.metrics.change(&config.metrics()) {
            self.refuse(&error);
            return Ok(());
        }
        // The old loops hold the claims that the new ones need.
        let none = Loops::none()?;
        std::mem::replace(&mut self.loops, none).stop()?;
        let mut tell = self.tell.clone();
        if config.journal() != self.config.journal() {
            // The old one is closed before the same file is opened again.
            self.tell.journal = None;
            tell.journal = None;
            tell.journal = open_journal(&config);
        }
        let rules: Vec<String> = config.rules.iter().map(Rule::name).collect();
        let policies: Vec<String> = config.loops().into_keys().map(|needs| needs.policy).collect();
        match Loops::start(&config, &self.notify, &tell) {
            Ok(loops) => {
                (self.loops, self.config, self.tell) = (loops, config, tell);
                (self.reloads, self.refused) = (self.reloads + 1, Vec::new());
                self.tell.totals.keep(&rules, &policies);
            }
            Err(error) => {
                self.refuse(&error);
                self.metrics.change(&self.config.metrics())?;
                if config.journal() != self.config.journal() {
                    drop(tell);
                    self.tell.journal = open_journal(&self.config);
                }
                self.loops = Loops::start(&self.config, &self.notify, &self.tell)
                    .context("the old configuration cannot be carried out again")?;
            }
        }
        Ok(())
    }

    fn refuse(&mut self, error: &anyhow::Error) {
        let line = format!("{error:#}");
        tell(&format!("mega: {line}; the old configuration stays in force"));
        self.refused = vec![line];
    }

    fn status(&self) -> Json {
        let own = std::process::id();
        let claims = self.claims.list().unwrap_or_default();
        let manager = |pid: u32| {
            claims
                .iter()
                .find(|(process, _)| *process == pid)
                .map(|(_, manager)| *manager)
        };
        let matched = self.loops.matching.look(None);
        let rules: Vec<Json> = self
            .loops
            .matching
            .rules()
            .iter()
            .enumerate()
            .map(|(number, rule)| {
                let scans = self.loops.each().find(|(_, rules, _)| rules.contains(&number)).map(|(.., scans)| scans);
                let of_rule = matched.iter().flatten().filter(|(_, at)| at.rule == number);
                let processes: Vec<Json> = of_rule
                    .map(|(&pid, at)| {
                        let state = match manager(pid) {
                            Some(manager) if manager == own => "managed".to_owned(),
                            Some(manager) => format!("managed by process {manager}"),
                            None if scans.is_none() => "left alone".to_owned(),
                            None if at.is_small => "below min-resident".to_owned(),
                            None => "not managed".to_owned(),
                        };
                        let mut process =
                            json!({"pid": pid, "comm": at.comm, "cgroup": at.cgroup, "resident_bytes": at.resident, "state": state});
                        extend(&mut process, self.loops.book.sum(&[pid]));
                        process
                    })
                    .collect();
                let pids: Vec<u32> = processes.iter().filter_map(|one| one["pid"].as_u64()?.try_into().ok()).collect();
                let resident: u64 = processes.iter().filter_map(|one| one["resident_bytes"].as_u64()).sum();
                let mut of_rule = json!({
                    "name": rule.name(), "from": rule.place.to_string(), "policy": rule.policy(), "scans": scans, "processes": processes,
                    "resident_bytes": resident,
                });
                if let Some(share) = rule.guarantee() {
                    let tables = self.tell.totals.tables();
                    of_rule["guarantee"] = json!(share.fraction());
                    of_rule["guarantee_missed"] = json!(tables.rules.get(&rule.name()).map(|of| of.missed.clone()).unwrap_or_default());
                }
                extend(&mut of_rule, self.loops.book.sum(&pids));
                of_rule
            })
            .collect();
        json!({
            "schema": 1, "kind": "status", "daemon": own, "up_seconds": self.began.elapsed().as_secs(),
            "files": self.config.files, "dry_run": self.config.dry_run(), "reloads": self.reloads,
            "last_reload_refused": self.refused, "journal": self.tell.journal.is_some().then(|| self.config.journal()).flatten(), "error": matched.as_ref().err(), "rules": rules,
        })
    }
}

/// Adds the members of another object.
fn extend(object: &mut Json, more: Option<Json>) {
    if let (Json::Object(object), Some(Json::Object(more))) = (object, more) {
        object.extend(more);
    }
}
