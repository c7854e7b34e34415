//! What `run` and `manage` have in common: from options to a loop that runs.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use mega_core::budget::Budget;
use mega_core::compaction::planner::{self, Planner};
use mega_core::compaction::target::FreeBlockTarget;
use mega_core::control::{Control, Settings, Status};
use mega_core::policy::{by_name, Policy, POLICIES};
use mega_core::units::Blocks;
use mega_linux::agent::alone;
use mega_linux::compact::{self, Actuator, Way};
use mega_linux::host::{LinuxHost, Options, Roster};
use mega_linux::knobs::thp::{self, Mode};
use mega_linux::knobs::{fault_size, FaultSize as Size};
use mega_linux::knobs::{Claims, Knobs, STATE_FOLDER};
use mega_linux::proc::ProcRoot;
use mega_linux::process::family::Family;
use mega_linux::process::tasks::TaskTable;
use mega_linux::scan::{choose, Preference, Scanner};
use mega_linux::sys::{can_except_advised, is_readable, own_thp_disable, set_open_files_limit, ThpDisable};
use mega_range::intent::Intent;

use crate::args::{FaultSize, MadeBy, ManageOptions, ScannerChoice};
use crate::output::Output;
use mega_cli::exit::Failure;
use mega_cli::settings::{describe_restored, open_knobs, require};

/// Everything that can fail before a program is touched has not failed.
pub struct Ready {
    policy: Box<dyn Policy>,
    /// One that was asked for. The best there is is opened only when managing begins: it takes 60 ms, for which a command
    /// need not wait.
    scanner: Option<Box<dyn Scanner>>,
    settings: Settings,
    options: ManageOptions,
    claims: Claims,
    /// Held so that they are put back when managing ends.
    knobs: Knobs,
    /// What to write to.
    pub output: Output,
    /// The soft limit of open files before it was raised: what the command is started with.
    pub open_files: u64,
}

/// The policy of this name with these parameters set.
pub fn policy_from(name: &str, sets: &[String]) -> Result<Box<dyn Policy>> {
    let names = || POLICIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let mut policy = by_name(name).ok_or_else(|| {
        let why = match mega_core::fault::by_name(name) {
            Some(_) => format!("policy '{name}' {}", crate::reserve::NEEDS),
            None => format!("no policy '{name}'"),
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

/// The policy that knows what matters.
pub const AUTO: &str = "auto";

/// Tells the policy what matters, where that was said.
///
/// # Errors
/// Another policy than auto does not ask.
pub fn set_intent(options: &mut ManageOptions, intent: Option<Intent>) -> Result<()> {
    match intent {
        None => {}
        Some(intent) if options.policy == AUTO => options.set.push(format!("for={}", intent.name())),
        Some(_) => return Err(Failure::usage(format!("--for is for policy {AUTO}"))),
    }
    Ok(())
}

/// How many free blocks are kept, and what makes them.
#[derive(Default)]
struct Compaction {
    target: Option<FreeBlockTarget>,
    actuator: Option<Box<dyn Actuator>>,
}

/// What ranks regions for compaction; none where it is off.
fn ranks(options: &ManageOptions) -> Result<Option<Box<dyn Planner>>> {
    match options.compact.as_str() {
        "off" => Ok(None),
        planner => planner::from_text(planner).map(Some).map_err(Failure::usage),
    }
}

/// Checks everything, and opens what does not take long.
pub fn prepare(options: ManageOptions) -> Result<Ready> {
    let policy = policy_from(&options.policy, &options.set)?;
    // Each managed process takes a descriptor; before the scanner, which takes its share.
    let open_files = set_open_files_limit(None).context("cannot raise the limit of open files")?;
    ranks(&options)?;
    require(options.dry_run)?;
    let mut output = Output::open(&options)?;
    // What a manager that was killed left behind is put back first.
    let mut knobs = open_knobs()?;
    for text in describe_restored(
        &knobs
            .recover()
            .context("cannot put back what an earlier manager left behind")?,
    ) {
        output.say(&text);
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
    let settings = Settings {
        interval: options.interval,
        budget: Budget {
            stall: options
                .stall_budget
                .or(policy.stall_budget())
                .unwrap_or(Budget::default().stall),
            cpu: options.cpu_budget,
            free_memory: options.free_memory,
            free_blocks: Blocks(options.free_blocks),
            pressure: options.pressure,
        },
        dry_run: options.dry_run,
        full_journal: options.journal_full,
    };
    let ready = Ready {
        policy,
        scanner: None,
        settings,
        options,
        claims,
        knobs,
        output,
        open_files,
    };
    match ready.options.scanner {
        ScannerChoice::Auto => Ok(ready),
        _ => ready.with_scanner(),
    }
}

/// Whether this machine's faults map huge pages that nobody asked for, and can be kept from it for one program (6.18): with
/// PR_THP_DISABLE_EXCEPT_ADVISED, which advice and MADV_COLLAPSE pass by.
pub fn can_keep_faults_small() -> bool {
    let mode = thp::read(&ProcRoot::default()).ok().flatten();
    mode.is_some_and(|thp| thp.huge_page_mode() == Mode::Always)
        && own_thp_disable() == Ok(ThpDisable::No)
        && can_except_advised()
}

impl Ready {
    /// Whether what is started is to have small faults, and can.
    pub fn small_faults(&self) -> bool {
        let is_chosen = self.options.fault_size.is_some() || self.options.dry_run;
        !is_chosen && self.policy.wants_small_faults() && can_keep_faults_small()
    }

    /// With the scanner, so that nothing can fail for want of one.
    ///
    /// # Errors
    /// There is no way to look at page tables.
    pub fn with_scanner(mut self) -> Result<Self> {
        self.scanner = Some(self.open_scanner()?);
        Ok(self)
    }

    /// The scanner. Says why it is not a better one, and what it cannot see.
    fn open_scanner(&mut self) -> Result<Box<dyn Scanner>> {
        let (scanner, refused) = scanner_for(self.options.scanner)?;
        for reason in refused {
            self.output.say(&format!("{reason}; using {}", scanner.name()));
        }
        if !scanner.sees_accessed() {
            if let Some(without) = self.policy.without_utilization() {
                self.output.say(&format!(
                    "scanner {} cannot see which pages are accessed: policy '{}' {without}",
                    scanner.name(),
                    self.policy.name()
                ));
            }
        }
        Ok(scanner)
    }

    /// How many free blocks are kept, and what makes them.
    fn open_compaction(&mut self) -> Result<Compaction> {
        let options = &self.options;
        let (Some(target), Some(ranked)) = (ranks(options)?, ranks(options)?) else {
            return Ok(Compaction::default());
        };
        let target = FreeBlockTarget::new(target);
        if options.dry_run {
            return Ok(Compaction {
                target: Some(target),
                actuator: None,
            });
        }
        let root = ProcRoot::default();
        let opened = match options.compact_how {
            MadeBy::Auto => compact::open_auto(&root, ranked),
            MadeBy::Only(Way::Chosen) => compact::open_chosen(ranked),
            MadeBy::Only(way) => compact::open(way, &root, STATE_FOLDER.as_ref()),
        };
        match opened {
            Ok(way) => Ok(Compaction {
                target: Some(target),
                actuator: Some(way),
            }),
            Err(error) => {
                self.output.say(&format!("no proactive compaction: {error}"));
                Ok(Compaction::default())
            }
        }
    }

    /// Manages whom the roster names until `stop` is readable, the time is over, or nobody is left. Agents are left alone
    /// first, and what is dear to open is opened for those who are there that long.
    ///
    /// # Errors
    /// There is no way to look at page tables.
    pub fn manage(mut self, mut roster: Box<dyn Roster>, stop: OwnedFd) -> Result<Managed> {
        // Who says how long to manage has it managed that long.
        let agents = self.output.agents().filter(|_| self.options.duration.is_none());
        let is_over = match agents {
            Some(pages) => {
                let root = ProcRoot::default();
                let pids = || roster.pids(&root).unwrap_or_default();
                let stopped = |most| is_readable(stop.as_fd(), most);
                alone::are_stopped(&root, pids, |pid| pages.of(pid), stopped)
            }
            None => is_readable(stop.as_fd(), Duration::ZERO),
        };
        let scanner = match self.scanner.take() {
            Some(scanner) => scanner,
            None if is_over => {
                choose(Preference::Only("pagemap"))
                    .context("no way to look at page tables")?
                    .0
            }
            None => self.open_scanner()?,
        };
        let compaction = match is_over {
            true => Compaction::default(),
            false => self.open_compaction()?,
        };
        let mut host = LinuxHost::new(
            scanner,
            roster,
            Options {
                root: ProcRoot::default(),
                stop: Some(stop),
                duration: self.options.duration,
                dry_run: self.options.dry_run,
                contents: !self.options.no_contents,
                claims: Some(self.claims),
                actuator: compaction.actuator,
                table: !is_over,
            },
        );
        let status = Control::new(&mut host, self.policy.as_mut(), self.settings, &mut self.output)
            .with_free_block_target(compaction.target)
            .run();
        match self.knobs.restore() {
            Ok(done) if done.left.is_empty() && done.failed.is_empty() => {}
            Ok(done) => describe_restored(&done).iter().for_each(|text| self.output.say(text)),
            Err(error) => self
                .output
                .say(&format!("settings are not put back (`mega off` tries again): {error}")),
        }
        Ok(Managed {
            status,
            output: self.output,
            anyone: host.seen_any(),
        })
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

    fn pids_in(&mut self, root: &ProcRoot, table: &TaskTable) -> Result<Vec<u32>, String> {
        self.family.look_in(root, table).map_err(|error| error.to_string())?;
        Ok(self.family.members().map(|member| member.pid).collect())
    }

    fn closed(&self) -> bool {
        self.closed
    }
}
