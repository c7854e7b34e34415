//! What `run` and `manage` have in common: from options to a loop that runs.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use mega_core::budget::Budget;
use mega_core::control::{Control, Settings, Status};
use mega_core::planner;
use mega_core::policy::{by_name, Policy, POLICIES};
use mega_core::stock::Stock;
use mega_core::units::Blocks;
use mega_linux::capabilities::Status as Found;
use mega_linux::compact::{self, Actuator, Way};
use mega_linux::host::{LinuxHost, Options, Roster};
use mega_linux::knobs::{fault_size, FaultSize as Size};
use mega_linux::knobs::{Claims, Knobs, Restored, STATE_FOLDER};
use mega_linux::proc::ProcRoot;
use mega_linux::process::family::Family;
use mega_linux::scan::{choose, Preference, Scanner};

use crate::args::{FaultSize, MadeBy, ManageOptions, ScannerChoice};
use crate::exit::Failure;
use crate::output::Output;

/// Everything that can fail before a program is touched has not failed.
pub struct Ready {
    policy: Box<dyn Policy>,
    scanner: Box<dyn Scanner>,
    settings: Settings,
    options: ManageOptions,
    claims: Claims,
    stock: Option<Stock>,
    actuator: Option<Box<dyn Actuator>>,
    /// Held so that they are put back when managing ends.
    knobs: Knobs,
    /// What to write to.
    pub output: Output,
}

/// The policy of this name with these parameters set.
pub fn policy_from(name: &str, sets: &[String]) -> Result<Box<dyn Policy>> {
    let names = || POLICIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let mut policy = by_name(name).ok_or_else(|| {
        let why = match mega_core::fault::by_name(name) {
            Some(_) => format!("policy '{name}' decides at page faults, which a stock kernel does not ask it about: it is for the simulator"),
            None => format!("no policy '{name}' that runs on a stock kernel"),
        };
        Failure::usage(format!("{why} (there are: {})", names()))
    })?;
    for set in sets {
        let (key, value) = set
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set '{set}' is not KEY=VALUE")))?;
        policy.set(key, value).map_err(Failure::usage)?;
    }
    policy.check().map_err(Failure::usage)?;
    Ok(policy)
}

/// The scanner asked for, and why better ones were refused.
pub fn scanner_for(choice: ScannerChoice) -> Result<(Box<dyn Scanner>, Vec<String>)> {
    let preference = match choice {
        ScannerChoice::Auto => Preference::Best,
        ScannerChoice::Ebpf => Preference::Only("ebpf"),
        ScannerChoice::PagemapScan => Preference::Only("pagemap_scan"),
        ScannerChoice::Pagemap => Preference::Only("pagemap"),
        ScannerChoice::Module => Preference::Only("module"),
    };
    choose(preference).context("no way to look at page tables")
}

/// Checks and opens everything.
pub fn prepare(options: ManageOptions) -> Result<Ready> {
    let policy = policy_from(&options.policy, &options.set)?;
    let mut stock = match options.compact.as_str() {
        "off" => None,
        planner => Some(Stock::new(planner::from_text(planner).map_err(Failure::usage)?)),
    };
    require(options.dry_run)?;
    let mut output = Output::open(options.journal.as_deref(), options.json, options.verbose, options.quiet)?;
    // What a manager that was killed left behind is put back first.
    let mut knobs = open_knobs()?;
    for text in describe_restored(
        &knobs
            .recover()
            .context("cannot put back what an earlier manager left behind")?,
    ) {
        output.say(&text);
    }
    let (scanner, refused) = scanner_for(options.scanner)?;
    for reason in refused {
        output.say(&format!("{reason}; using {}", scanner.name()));
    }
    if !scanner.sees_accessed() {
        if let Some(without) = policy.without_utilization() {
            output.say(&format!(
                "scanner {} cannot see which pages are accessed: policy '{}' {without}",
                scanner.name(),
                policy.name()
            ));
        }
    }
    let claims = Claims::open(STATE_FOLDER.as_ref()).context("cannot open the list of managed processes")?;
    if let Some(size) = options.fault_size {
        let size = match size {
            FaultSize::Base => Size::Base,
            FaultSize::Medium => Size::Small,
            FaultSize::Huge => Size::Huge,
        };
        fault_size(&mut knobs, size).context("cannot set what a fault maps")?;
    }
    let mut actuator = None;
    if stock.is_some() && !options.dry_run {
        let root = ProcRoot::default();
        let ranks = planner::from_text(&options.compact).map_err(Failure::usage)?;
        let opened = match options.compact_how {
            MadeBy::Auto => compact::open_auto(&root, ranks),
            MadeBy::Only(Way::Chosen) => compact::open_chosen(ranks),
            MadeBy::Only(way) => compact::open(way, &root, STATE_FOLDER.as_ref()),
        };
        match opened {
            Ok(way) => actuator = Some(way),
            Err(error) => {
                output.say(&format!("no stock of free blocks is kept: {error}"));
                stock = None;
            }
        }
    }
    let settings = Settings {
        interval: options.interval,
        budget: Budget {
            stall: options.stall_budget,
            cpu: options.cpu_budget,
            free_memory: options.free_memory,
            free_blocks: Blocks(options.free_blocks),
            pressure: options.pressure,
        },
        dry_run: options.dry_run,
        full_journal: options.journal_full,
    };
    Ok(Ready {
        policy,
        scanner,
        settings,
        options,
        claims,
        stock,
        actuator,
        knobs,
        output,
    })
}

/// Whether managing can work here at all; one line that says what is missing and what still works.
pub fn require(dry_run: bool) -> Result<()> {
    let machine = mega_linux::capabilities::examine(&ProcRoot::default());
    let mut needed = vec!["page-sizes", "thp", "cap-sys-ptrace"];
    if !dry_run {
        needed.extend(["cap-sys-nice", "collapse"]);
    }
    let missing: Vec<String> = machine
        .findings
        .iter()
        .filter(|finding| finding.status == Found::Missing && needed.contains(&finding.name))
        .map(|finding| format!("{} ({}: {})", finding.name, finding.detail, finding.consequence))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::bail!(
        "managing cannot work here; missing: {}. Run it as root; without, `mega show` of your own processes, `mega doctor`, \
         `mega policies` and `mega replay` work",
        missing.join("; ")
    )
}

/// This machine's settings, with undo.
pub fn open_knobs() -> Result<Knobs> {
    Knobs::open(ProcRoot::default(), STATE_FOLDER.as_ref()).context("cannot keep the machine's settings safe")
}

/// What was put back, and what was not, a line each.
pub fn describe_restored(done: &Restored) -> Vec<String> {
    let restored = done.restored.iter().map(|path| format!("put back {}", path.display()));
    let left = done.left.iter().map(|left| {
        let path = left.path.display();
        format!(
            "left alone {path}: it was '{}', and somebody else made it '{}'",
            left.original, left.current
        )
    });
    let shared = done
        .shared
        .iter()
        .map(|path| format!("{}: another manager holds it", path.display()));
    let failed = done
        .failed
        .iter()
        .map(|(path, why)| format!("could not put back {}: {why}", path.display()));
    let corrupt = done
        .corrupt
        .iter()
        .map(|path| format!("a state file made no sense; kept as {}", path.display()));
    restored
        .chain(left)
        .chain(shared)
        .chain(failed)
        .chain(corrupt)
        .collect()
}

impl Ready {
    /// Manages whom the roster names until `stop` is readable, the time is over, or nobody is left.
    pub fn manage(mut self, roster: Box<dyn Roster>, stop: OwnedFd) -> Managed {
        let mut host = LinuxHost::new(
            self.scanner,
            roster,
            Options {
                root: ProcRoot::default(),
                stop: Some(stop),
                duration: self.options.duration,
                dry_run: self.options.dry_run,
                claims: Some(self.claims),
                actuator: self.actuator,
            },
        );
        let status = Control::new(&mut host, self.policy.as_mut(), self.settings, &mut self.output)
            .with_stock(self.stock)
            .run();
        match self.knobs.restore() {
            Ok(done) if done.left.is_empty() && done.failed.is_empty() => {}
            Ok(done) => describe_restored(&done).iter().for_each(|text| self.output.say(text)),
            Err(error) => self
                .output
                .say(&format!("settings are not put back (`mega off` tries again): {error}")),
        }
        Managed {
            status,
            output: self.output,
            anyone: host.seen_any(),
        }
    }
}

/// What managing came to.
pub struct Managed {
    /// The figures.
    pub status: Status,
    /// Where the summary goes.
    pub output: Output,
    /// Whether any process was managed at all.
    pub anyone: bool,
}

/// Processes and all that comes of them.
pub struct FamilyRoster {
    family: Family,
    closed: bool,
}

impl FamilyRoster {
    /// Over when the last one known has ended.
    pub fn of(pids: Vec<u32>) -> Self {
        Self {
            family: Family::of(pids),
            closed: true,
        }
    }

    /// What is below us: over when whoever reaps it says so, because the last one known may have left a daemon that no look has seen.
    pub fn below_us() -> Self {
        Self {
            family: Family::below(std::process::id()),
            closed: false,
        }
    }
}

impl Roster for FamilyRoster {
    fn pids(&mut self, root: &ProcRoot) -> Result<Vec<u32>, String> {
        self.family.look(root).map_err(|error| error.to_string())?;
        Ok(self.family.members().map(|member| member.pid).collect())
    }

    fn closed(&self) -> bool {
        self.closed
    }
}
