//! The workloads of this crate as programs of an experiment: one process or several, watched from before their first touch until
//! they free their memory.
//!
//! ```text
//!   all born ─► watched ─► go ─► fill … ready ─► run … result ─► memory measured ─► quit ─► check … exit status
//! ```

mod instance;
mod measures;
mod run;

use std::ffi::OsString;

use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::result::Metric;
use crate::workload::{self, WorkloadError};
use run::Processes;

pub(crate) use measures::{figures, of as metrics_of};

/// One workload, or several of the same at once.
#[derive(Debug, Clone)]
pub struct Builtin {
    /// Name in the record: that of the workload unless changed.
    pub name: String,
    /// Name of the workload.
    pub workload: String,
    /// Its options; seed and processor come from the launch unless given here.
    pub args: Vec<String>,
    /// Number of processes. The first has the launch's seed, the others the following ones.
    pub instances: usize,
    /// What it measures.
    pub metrics: Vec<Metric>,
    /// What all processes need together.
    pub needs: Needs,
    /// Estimated time of a run.
    pub seconds: f64,
    /// The command before the workload's name; empty: the launch's `mega workload`.
    pub command: Vec<OsString>,
}

/// Workload `name` with `args` (names of options without their dashes; a switch has an empty value), in `instances` processes.
/// Metrics, needs and time follow from both.
///
/// ```
/// let chunks = mega_lab::program::builtin::builtin("chunks", &[("mib", "2048"), ("seconds", "30")], 2).unwrap();
/// assert_eq!(chunks.needs.memory_bytes, 2 * 2048 << 20);
/// ```
///
/// # Errors
/// No such workload, or options that it does not take.
pub fn builtin(name: &str, args: &[(&str, &str)], instances: usize) -> Result<Builtin, WorkloadError> {
    let word = |(option, value): &(&str, &str)| match *value {
        "" => format!("--{option}"),
        value => format!("--{option}={value}"),
    };
    let args: Vec<String> = args.iter().map(word).collect();
    let plan = workload::plan(name, &args)?;
    let metrics = measures::of(name).ok_or_else(|| WorkloadError::Usage(format!("{name} measures nothing")))?;
    let seconds = plan
        .seconds
        .ok_or_else(|| WorkloadError::Usage(format!("{name} needs --seconds here, else it never ends")))?;
    let instances = instances.max(1);
    Ok(Builtin {
        name: name.to_string(),
        workload: name.to_string(),
        args,
        instances,
        metrics,
        needs: Needs {
            memory_bytes: plan.memory_bytes.saturating_mul(instances as u64),
            disk_bytes: 0,
        },
        seconds,
        command: Vec::new(),
    })
}

impl Program for Builtin {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn describe(&self) -> String {
        let mut text = format!("mega workload {}", self.workload);
        for arg in &self.args {
            text += " ";
            text += arg;
        }
        if self.instances > 1 {
            text += &format!(" ({} at once)", self.instances);
        }
        text
    }

    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn needs(&self) -> Needs {
        self.needs.clone()
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let mut run = Processes::start(self, launch)?;
        run.wait_for_births(watch)?;
        watch.phase("fill");
        run.say_to_all("go")?;
        run.wait_for_all("ready", watch)?;
        watch.phase("run");
        run.wait_for_all("result", watch)?;
        watch.memory_now("");
        watch.phase("check");
        run.say_to_all("quit")?;
        run.wait_for_ends(watch)?;
        Ok(measures::figures(run.results()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_made_from_its_options_and_wrong_ones_are_refused() {
        let chunks = builtin("chunks", &[("mib", "600"), ("seconds", "30")], 2).unwrap();
        assert_eq!(chunks.needs.memory_bytes, 1200 << 20);
        assert!(chunks.seconds > 30.0 && chunks.seconds < 60.0);
        assert_eq!(
            chunks.describe(),
            "mega workload chunks --mib=600 --seconds=30 (2 at once)"
        );
        assert!(builtin("holes", &[("random", "")], 1).is_ok());
        for (name, args) in [
            ("gusp", ("mib", "1")),
            ("gups", ("mob", "1")),
            ("kinds", ("regions", "1")),
        ] {
            assert!(builtin(name, &[args], 1).is_err(), "{name}");
        }
        let forever = builtin("sparse", &[], 1).unwrap_err();
        assert!(forever.to_string().contains("--seconds"), "{forever}");
    }
}
