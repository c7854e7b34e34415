//! Ctrl-C, SIGTERM and SIGHUP while experiments run.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};

struct Stop {
    /// The user wants to stop.
    asked: Arc<AtomicBool>,
    /// Nothing would have to be put back.
    at_once: Arc<AtomicBool>,
}

static STOP: OnceLock<Stop> = OnceLock::new();

/// Set by Ctrl-C: the run that goes on is ended, its settings are put back, what was measured is kept. A second one ends us at once.
pub fn flag() -> Result<Arc<AtomicBool>> {
    if let Some(stop) = STOP.get() {
        return Ok(Arc::clone(&stop.asked));
    }
    let [asked, at_once] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        for ends in [&asked, &at_once] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(ends))
                .context("cannot watch signals")?;
        }
        signal_hook::flag::register(signal, Arc::clone(&asked)).context("cannot watch signals")?;
    }
    Ok(Arc::clone(&STOP.get_or_init(|| Stop { asked, at_once }).asked))
}

/// Whether the user wants to stop.
pub fn asked() -> bool {
    STOP.get().is_some_and(|stop| stop.asked.load(Relaxed))
}

/// Does what changes nothing of the machine's and may take minutes: Ctrl-C meanwhile ends us at once, as it would without [`flag`].
///
/// # Errors
/// When the user wanted to stop before.
pub fn at_once<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(stop) = STOP.get() else { return work() };
    stop.at_once.store(true, Relaxed);
    // A signal after the line above ends us; one before it is seen here.
    anyhow::ensure!(!asked(), "stopped before its end");
    let done = work();
    stop.at_once.store(false, Relaxed);
    done
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use signal_hook::consts::SIGINT;
    use signal_hook::low_level::raise;

    use super::*;

    const PART: &str = "MEGA_TEST_STOP";

    /// What the test below has processes of its own for.
    #[test]
    fn plays_its_part() {
        let Ok(part) = std::env::var(PART) else { return };
        let flag = flag().unwrap();
        at_once(|| Ok(())).unwrap();
        if part == "at once" {
            at_once(|| Ok(raise(SIGINT)?)).unwrap();
            panic!("Ctrl-C while nothing would have to be put back did not end this");
        }
        raise(SIGINT).unwrap();
        assert!(asked() && flag.load(Relaxed));
        if part == "again" {
            raise(SIGINT).unwrap();
        }
        let late: Result<()> = at_once(|| panic!("the user wants to stop"));
        assert!(late.is_err());
    }

    #[test]
    fn the_first_ctrl_c_asks_and_ends_only_what_changes_nothing() {
        for (part, signal) in [("asks", None), ("again", Some(SIGINT)), ("at once", Some(SIGINT))] {
            let mut program = Command::new(std::env::current_exe().unwrap());
            program
                .args(["--exact", "bench::stop::tests::plays_its_part"])
                .env(PART, part);
            let ended = program.output().unwrap();
            assert_eq!(ended.status.signal(), signal, "{part}: {ended:?}");
            assert_eq!(ended.status.success(), signal.is_none(), "{part}: {ended:?}");
        }
    }
}
