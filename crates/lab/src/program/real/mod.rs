//! Real programs that people run, a file each: a runtime or library, pinned, and a small job for it that makes its own data and checks its own
//! result. What pip has is installed once, into a folder of its own; nothing else on the machine changes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::command::run_to_end;
use super::support::{last_line, need, scaled, system, tail, time_ns, Session};
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::result::Metric;

mod clickhouse;
mod duckdb;
mod go;
mod jvm;
mod node;
mod numpy;
mod postgresql;
mod sklearn;
mod workers;

pub use self::{
    clickhouse::CLICKHOUSE, duckdb::DUCKDB, go::GO, jvm::JVM, node::NODE, numpy::NUMPY, postgresql::POSTGRESQL,
    sklearn::SKLEARN, workers::WORKERS,
};

/// The last line of a job that found its result right.
const RIGHT: &str = "right";

/// A job for a real program.
#[derive(Debug, Clone, Copy)]
pub struct Real {
    /// Its short name.
    pub name: &'static str,
    /// What it does, in words.
    pub about: &'static str,
    /// The program that runs it, and how to install that.
    pub runtime: (&'static str, &'static str),
    /// Python packages with their versions, installed into a folder of their own.
    pub packages: &'static [&'static str],
    /// Name and text of its source. It is given size and seed, checks its result, and prints `right`.
    pub source: (&'static str, &'static str),
    /// Words that compile it beforehand, the first a program; `{source}` and `{made}` stand for paths.
    pub compile: &'static [&'static str],
    /// Words that run it; also `{size}`, `{seed}`, `{scratch}` and `{runtime}`.
    pub run: &'static [&'static str],
    /// Its size at scale 1, and the least that makes sense.
    pub size: (u64, u64),
    /// Memory beside that of its data, and of each unit of size.
    pub bytes: (u64, u64),
    /// Seconds of each unit of size, about.
    pub unit_s: f64,
}

/// A job at a size.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    real: Real,
    size: u64,
}

impl Real {
    /// The job at a scale.
    #[must_use]
    pub fn job(self, scale: f64) -> Job {
        let size = scaled(self.size.0, scale, self.size.1);
        Job { real: self, size }
    }

    /// Where its packages are: a folder whose name says which.
    fn folder(&self) -> PathBuf {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let cache = cache.unwrap_or_else(|| PathBuf::from("/var/cache"));
        cache.join("mega-lab").join(self.packages.join("+").replace("==", "-"))
    }

    /// Installs its packages, if they are not there yet.
    fn install(&self, python: &Path) -> Result<(), ProgramError> {
        let folder = self.folder();
        if self.packages.is_empty() || folder.is_dir() {
            return Ok(());
        }
        let part = folder.with_extension(format!("part-{}", std::process::id()));
        let mut pip = Command::new(python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
        ]);
        pip.arg(&part)
            .args(self.packages)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let output = pip.output().map_err(system("run pip"))?;
        if !output.status.success() {
            let _ = std::fs::remove_dir_all(&part);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let said = said.lines().last().unwrap_or_default();
            let packages = self.packages.join(", ");
            return Err(ProgramError::NotHere(format!("pip cannot install {packages}: {said}")));
        }
        std::fs::rename(&part, &folder).map_err(system(&format!("rename to {}", folder.display())))
    }

    /// The program that runs it. For Python the interpreter itself, not a script that chooses one.
    fn runtime(&self) -> Result<PathBuf, ProgramError> {
        let (program, how) = self.runtime;
        let found = need(program, how)?;
        if program != "python3" {
            return Ok(found);
        }
        let mut ask = Command::new(&found);
        ask.args(["-c", "import sys; print(sys.executable)"])
            .stdin(Stdio::null());
        let output = ask.output().map_err(system("ask Python where it is"))?;
        let said = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(if said.is_file() { said } else { found })
    }
}

impl Job {
    fn words(&self, words: &[&str], runtime: &Path, launch: &Launch) -> Vec<OsString> {
        let scratch = &launch.scratch;
        let word = |word: &&str| -> OsString {
            match *word {
                "{runtime}" => runtime.into(),
                "{source}" => scratch.join(self.real.source.0).into(),
                "{made}" => scratch.join("made").into(),
                "{scratch}" => scratch.into(),
                "{size}" => self.size.to_string().into(),
                "{seed}" => (launch.seed % 1_000_000).to_string().into(),
                other => other.into(),
            }
        };
        words.iter().map(word).collect()
    }

    fn compile(&self, runtime: &Path, launch: &Launch) -> Result<(), ProgramError> {
        let words = self.words(self.real.compile, runtime, launch);
        let Some((program, rest)) = words.split_first() else {
            return Ok(());
        };
        let mut command = Command::new(program);
        command.args(rest).current_dir(&launch.scratch).stdin(Stdio::null());
        let output = command.output().map_err(system("run its compiler"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(ProgramError::Start {
                program: self.name(),
                why: String::from_utf8_lossy(&output.stderr)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_string(),
            }),
        }
    }
}

impl Program for Job {
    fn name(&self) -> String {
        self.real.name.to_string()
    }

    fn describe(&self) -> String {
        let mut text = format!("{}, size {}", self.real.about, self.size);
        if !self.real.packages.is_empty() {
            text += &format!(" ({})", self.real.packages.join(", "));
        }
        text
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![time_ns()]
    }

    fn needs(&self) -> Needs {
        let (fixed, unit) = self.real.bytes;
        Needs {
            memory_bytes: fixed + unit * self.size,
            disk_bytes: 64 << 20,
        }
    }

    fn seconds(&self) -> f64 {
        2.0 + self.real.unit_s * self.size as f64
    }

    fn ready(&self) -> Result<(), ProgramError> {
        let (program, how) = self.real.runtime;
        need(program, how).map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let runtime = self.real.runtime()?;
        self.real.install(&runtime)?;
        let (name, text) = self.real.source;
        std::fs::write(launch.scratch.join(name), text).map_err(system("write its source"))?;
        self.compile(&runtime, launch)?;
        let mut words = self.words(self.real.run, &runtime, launch);
        if !self.real.packages.is_empty() {
            let mut path = OsString::from("PYTHONPATH=");
            path.push(self.real.folder());
            words.splice(0..0, ["env".into(), path]);
        }
        let mut session = Session::new(self.name(), launch, watch);
        let (wall_ns, task) = run_to_end(&mut session, &words, false)?;
        if last_line(&task.stdout) != RIGHT {
            return Err(ProgramError::Wrong {
                program: self.name(),
                why: format!("it printed {:?}", tail(&task.stdout, 200).trim()),
            });
        }
        let mut figures = Figures::default();
        figures.values.insert("elapsed_ns".into(), wall_ns as f64);
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_pinned_checks_itself_and_has_a_folder_of_its_own() {
        for real in [CLICKHOUSE, DUCKDB, GO, JVM, NODE, NUMPY, POSTGRESQL, SKLEARN, WORKERS] {
            assert!(
                real.packages.iter().all(|package| package.contains("==")),
                "{}",
                real.name
            );
            assert!(
                real.source.1.contains(RIGHT) && real.run.contains(&"{size}"),
                "{}",
                real.name
            );
            assert!(real.job(0.001).size >= real.size.1);
        }
        assert!(NUMPY
            .folder()
            .ends_with(format!("mega-lab/{}", NUMPY.packages.join("+").replace("==", "-"))));
    }
}
