//! `mega run`: run a command and manage it and its children.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use mega_linux::agent::inject;
use mega_linux::agent::profiles::Profiles;
use mega_linux::knobs::STATE_FOLDER;
use mega_linux::sys::{self, ThpDisable, User};
use mega_range::intent::Intent;

use crate::agent::pages::Pages;
use crate::agent::profiles;
use crate::agent::start::{self, library_for, Environment};
use crate::args::{ManageOptions, RunArgs};
use crate::children::{self, not_started, Circumstances};
use crate::manage::{can_keep_faults_small, prepare, set_intent, FamilyRoster, AUTO};
use crate::output::Output;
use crate::reserve;
use mega_cli::exit::{say, tell, Failure};
use mega_cli::mosaic::target;

/// Exits with the command's status, or 125 to 127 when it did not come to that.
pub fn run(args: RunArgs) -> ExitCode {
    if args.agent.agent_only {
        return agent_only(&args);
    }
    // Before anything of ours shows: `mega off` ends by a signal whom it finds.
    let signals = match children::watch_signals() {
        Ok(signals) => signals,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    match reserve::threshold(&args.options).and_then(|found| Ok((found, user(args.user.as_deref())?))) {
        Ok((Some(_), _)) if args.agent.agent || args.agent.intent.intent.is_some() => {
            let error =
                Failure::usage("this policy promotes at page faults, in the kernel: it takes no agent and no --for");
            return Failure::status(Err(error), Failure::RUN_FAILED);
        }
        Ok((Some(pages), user)) => return reserve::run(&args.command, &args.options, user, pages, signals),
        Ok((None, _)) => {}
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    }
    let prepared = prepare_all(&args);
    let (user, plan, mut ready) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    if user.is_none() {
        if let Some(name) = invoker() {
            ready.output.say(&format!(
                "the command runs as root; --user {name} runs it as who called sudo"
            ));
        }
    }
    let environment = match plan.agent {
        true => with_agent(&args, user.as_ref(), plan.intent, &mut ready.output),
        false => None,
    };
    let mut environment = environment.unwrap_or_else(start::without);
    let has_agent = plan.agent && start::has_agent(&environment);
    if has_agent && args.options.no_contents {
        start::without_contents(&mut environment);
    }
    let mut command = args.command.clone();
    let program = command.first().map_or(Path::new(""), Path::new);
    if has_agent && target::is_static(program) {
        start::begin_by_us(&mut command, &mut environment);
    }
    let small_faults = ready.small_faults();
    if small_faults {
        ready
            .output
            .say("THP is always: the command's faults map base pages except where advised (prctl)");
    }
    let within = Circumstances {
        small_faults,
        user,
        open_files: Some(ready.open_files),
        reserve: None,
        environment,
    };
    let running = match children::start(&command, signals, within) {
        Ok(running) => running,
        Err(failed) => {
            say(&failed.error);
            return ExitCode::from(failed.status);
        }
    };
    // We are the reaper of orphans, so all that comes of the command stays below us.
    let managed = running
        .stop
        .try_clone()
        .map_err(anyhow::Error::new)
        .and_then(|stop| ready.manage(Box::new(FamilyRoster::below_us()), stop));
    // Even if managing ended early (--duration), the command is waited for, and its status is ours.
    let status = running.finish();
    match managed {
        Ok(managed) => {
            if let Err(error) = managed.output.finish(&managed.status, false) {
                say(&error);
            }
        }
        Err(error) => say(&error.context("cannot manage the command")),
    }
    ExitCode::from(status)
}

fn prepare_all(args: &RunArgs) -> Result<(Option<User>, Plan, crate::manage::Ready)> {
    let user = user(args.user.as_deref())?;
    let mut options = args.options.clone();
    let plan = Plan::of(args, &mut options)?;
    Ok((user, plan, prepare(options)?))
}

/// What the options say about the agent.
struct Plan {
    agent: bool,
    intent: Option<Intent>,
}

impl Plan {
    /// Also tells the policy what matters, where it asks.
    fn of(args: &RunArgs, options: &mut ManageOptions) -> Result<Self> {
        let is_auto = options.policy == AUTO;
        let agent = args.agent.agent || is_auto && !args.agent.no_agent && !options.dry_run;
        let mut intent = args.agent.intent.intent;
        match intent {
            Some(_) if is_auto => set_intent(options, intent)?,
            Some(_) if !agent => {
                let text = format!("--for is for policy {AUTO} and for the agent (--agent, --agent-only)");
                return Err(Failure::usage(text));
            }
            Some(_) => {}
            None if is_auto => {
                let set = options.set.iter().filter_map(|set| set.strip_prefix("for="));
                intent = set.filter_map(|value| Intent::by_name(value.as_bytes())).next_back();
            }
            None => {}
        }
        Ok(Self { agent, intent })
    }
}

/// The environment with the agent, or why the command does without: where that is the command's own nature, only whoever asked is told.
fn with_agent(args: &RunArgs, user: Option<&User>, intent: Option<Intent>, output: &mut Output) -> Option<Environment> {
    let program = args.command.first().map_or(Path::new(""), Path::new);
    let can_load = match target::is_static(program) {
        true => start::us_for(user).map(drop),
        false => target::check(program),
    };
    if can_load.is_err() && !args.agent.agent {
        return None;
    }
    let prepared = can_load
        .and_then(|()| library_for(user))
        .and_then(|library| Ok((library, Pages::create(Path::new(STATE_FOLDER), user)?)));
    match prepared {
        Ok((library, pages)) => {
            let profiles = profiles_for(args);
            let environment = start::with(&library, intent, Some(&pages), profiles.as_ref());
            output.watch_agents(pages, profiles);
            Some(environment)
        }
        Err(error) => {
            output.say(&format!("the command runs without the agent: {error:#}"));
            None
        }
    }
}

/// What was learned of programs. Another user's would be told what ours did, and what they show is not to be believed for ours.
fn profiles_for(args: &RunArgs) -> Option<Profiles> {
    let is_wanted = args.user.is_none() && !args.agent.no_profiles;
    is_wanted.then(profiles::own)?.ok()
}

/// Becomes the command, with the agent in it.
fn agent_only(args: &RunArgs) -> ExitCode {
    let prepared = user(args.user.as_deref()).and_then(|user| Ok((library_for(user.as_ref())?, user)));
    let (library, user) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    let Some((name, words)) = args.command.split_first() else {
        return ExitCode::from(Failure::RUN_FAILED);
    };
    let is_static = target::is_static(Path::new(name));
    let can_begin = match is_static {
        true => Ok(()),
        false => target::check(Path::new(name)),
    };
    let without = |error: &anyhow::Error| {
        if !args.options.quiet {
            tell(&format!("mega: the command runs without the agent: {error:#}"));
        }
    };
    if let Err(error) = can_begin {
        without(&error);
    }
    let mut command = Command::new(name);
    let intent = args.agent.intent.intent.or_else(start::intent_of_ours);
    let environment = start::with(&library, intent, None, profiles_for(args).as_ref());
    command.args(words).envs(environment);
    if user.is_some() {
        sys::before_exec(&mut command, user, None);
    }
    if intent != Some(Intent::Throughput) && can_keep_faults_small() {
        sys::disable_thp_before_exec(&mut command, ThpDisable::ExceptAdvised);
    }
    // The last thing: what is traced is to become the command.
    if is_static {
        if let Err(error) = inject::before_exec(&library) {
            without(&error.into());
        }
    }
    let failed = not_started(name, command.exec());
    say(&failed.error);
    ExitCode::from(failed.status)
}

/// The user to run the command as.
fn user(name: Option<&str>) -> Result<Option<User>> {
    let Some(name) = name else { return Ok(None) };
    let found = User::find(name).ok_or_else(|| Failure::usage(format!("--user: there is no user '{name}'")))?;
    Ok(Some(found))
}

/// Who called sudo, where that is not root.
fn invoker() -> Option<String> {
    let uid: u32 = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    (uid != 0 && rustix::process::geteuid().is_root()).then(|| std::env::var("SUDO_USER").ok())?
}
