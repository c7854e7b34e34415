//! Batch programs that hardly benefit from huge pages: they show the plain cost of a manager. Their output is verified.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::command::run_to_end;
use super::support::{need, scaled, system, tail, time_ns, Session};
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::memory::content::mix;
use crate::result::Metric;

/// How to install each.
const INSTALL_GCC: &str = "apt install gcc, or dnf install gcc";
const INSTALL_ZSTD: &str = "apt install zstd, or dnf install zstd";
const INSTALL_PYTHON: &str = "apt install python3, or dnf install python3";

/// Estimated time here per function, byte, iteration.
const GCC_FUNCTION_S: f64 = 30e-3;
const ZSTD_BYTE_S: f64 = 0.6e-6;
const PYTHON_TURN_S: f64 = 0.3e-6;

/// One of them, with its size.
#[derive(Debug, Clone)]
pub enum Batch {
    /// gcc -O2 on a file with this many functions.
    Gcc {
        /// Number of functions.
        functions: u64,
    },
    /// zstd -19 on this many bytes.
    Zstd {
        /// Bytes of the data.
        bytes: u64,
    },
    /// Python, this many turns of a loop.
    Python {
        /// Number of turns.
        turns: u64,
    },
}

/// Input and output of one of them.
struct Job {
    argv: Vec<OsString>,
    input: Vec<u8>,
    made: PathBuf,
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ProgramError> {
    let doing = format!("write {}", path.display());
    std::fs::write(path, bytes).map_err(system(&doing))
}

/// A C program of many functions, each a chain of arithmetic, which prints the exclusive-or of their results.
fn c_source(functions: u64, seed: u64) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdint.h>\n");
    for i in 0..functions {
        let (a, b) = (mix(seed ^ i) | 1, mix(seed ^ !i));
        let _ = writeln!(
            text,
            "static __attribute__((noinline)) uint64_t f{i}(uint64_t x) {{\n  uint64_t t[8] = {{0}};\n  \
             for (int j = 0; j < 8; j++) {{ x = x * {a}u + {b}u; if (x & 4096) x ^= x >> 7; t[j] = x; }}\n  \
             for (int j = 1; j < 8; j++) t[0] += t[j] ^ (t[j - 1] >> 3);\n  return t[0];\n}}"
        );
    }
    text.push_str("int main(void) {\n  uint64_t r = 0;\n");
    for i in 0..functions {
        let _ = writeln!(text, "  r ^= f{i}({i}u);");
    }
    text.push_str("  printf(\"%llu\\n\", (unsigned long long)r);\n  return 0;\n}\n");
    text
}

/// What that program must print.
fn c_result(functions: u64, seed: u64) -> u64 {
    (0..functions).fold(0, |r, i| {
        let (a, b) = (mix(seed ^ i) | 1, mix(seed ^ !i));
        let (mut x, mut t) = (i, [0u64; 8]);
        for slot in &mut t {
            x = x.wrapping_mul(a).wrapping_add(b);
            if x & 4096 != 0 {
                x ^= x >> 7;
            }
            *slot = x;
        }
        for j in 1..8 {
            t[0] = t[0].wrapping_add(t[j] ^ (t[j - 1] >> 3));
        }
        r ^ t[0]
    })
}

/// Data that compresses somewhat: words out of a small vocabulary, and numbers.
fn text(bytes: u64, seed: u64) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes as usize + 32);
    let mut i = 0;
    while (data.len() as u64) < bytes {
        let r = mix(seed ^ mix(i));
        let word = mix(r % 4096);
        let _ = match r >> 62 {
            0 => std::io::Write::write_fmt(&mut data, format_args!("{} ", r % 100_000)),
            _ => std::io::Write::write_fmt(&mut data, format_args!("{:x} ", word >> (word % 48))),
        };
        i += 1;
    }
    data.truncate(bytes as usize);
    data
}

/// The loop in Python: a linear congruential generator that also fills a dictionary.
const PYTHON: &str = "import sys\nn, x, d = int(sys.argv[1]), int(sys.argv[2]), {}\n\
for i in range(n):\n    x = (x * 1103515245 + 12345) % 2147483648\n    d[x % 65536] = d.get(x % 65536, 0) + x\n\
print(sum(d.values()))\n";

/// What it must print.
fn python_result(turns: u64, seed: u64) -> u64 {
    let step = |x: &u64| Some((x * 1_103_515_245 + 12_345) % 2_147_483_648);
    std::iter::successors(Some(seed), step)
        .skip(1)
        .take(turns as usize)
        .sum()
}

impl Batch {
    /// 1,000 functions.
    #[must_use]
    pub fn gcc(scale: f64) -> Self {
        Self::Gcc {
            functions: scaled(1000, scale, 10),
        }
    }

    /// 64 MB.
    #[must_use]
    pub fn zstd(scale: f64) -> Self {
        Self::Zstd {
            bytes: scaled(64 << 20, scale, 1 << 16),
        }
    }

    /// 50 M turns.
    #[must_use]
    pub fn python(scale: f64) -> Self {
        Self::Python {
            turns: scaled(50_000_000, scale, 1000),
        }
    }

    fn program(&self) -> Result<PathBuf, ProgramError> {
        match self {
            Self::Gcc { .. } => need("gcc", INSTALL_GCC),
            Self::Zstd { .. } => need("zstd", INSTALL_ZSTD),
            Self::Python { .. } => need("python3", INSTALL_PYTHON),
        }
    }

    fn job(&self, launch: &Launch) -> Result<Job, ProgramError> {
        let program = self.program()?;
        let (input, made) = (launch.scratch.join("input.c"), launch.scratch.join("made"));
        let (bytes, words): (Vec<u8>, Vec<OsString>) = match self {
            Self::Gcc { functions } => (
                c_source(*functions, launch.seed).into_bytes(),
                vec!["-O2".into(), "-o".into(), made.clone().into(), input.clone().into()],
            ),
            Self::Zstd { bytes } => (
                text(*bytes, launch.seed),
                vec![
                    "-19".into(),
                    "-T1".into(),
                    "-q".into(),
                    "-o".into(),
                    made.clone().into(),
                    input.clone().into(),
                ],
            ),
            Self::Python { turns } => (
                PYTHON.into(),
                vec![
                    input.clone().into(),
                    turns.to_string().into(),
                    (launch.seed % 1000).to_string().into(),
                ],
            ),
        };
        write(&input, &bytes)?;
        Ok(Job {
            argv: std::iter::once(program.into()).chain(words).collect(),
            input: bytes,
            made,
        })
    }

    /// Verifies its output; `printed` is its stdout.
    fn verify(&self, session: &Session, job: &Job, printed: &str) -> Result<(), ProgramError> {
        let seed = session.launch.seed;
        let result = |printed: &str, right: u64| match printed.trim() == right.to_string() {
            true => Ok(()),
            false => Err(format!("the result is {:?}, expected {right}", printed.trim())),
        };
        let run = |command: &mut Command| {
            let doing = format!("run {:?}", command.get_program());
            let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
            output.map(|output| output.stdout).map_err(system(&doing))
        };
        let right = match self {
            Self::Gcc { functions } => {
                let printed = run(&mut Command::new(&job.made))?;
                result(&String::from_utf8_lossy(&printed), c_result(*functions, seed))
            }
            Self::Zstd { .. } => {
                let back = run(Command::new(&job.argv[0]).args(["-d", "-c", "-q"]).arg(&job.made))?;
                match back == job.input {
                    true => Ok(()),
                    false => Err("the unpacked data differs from the packed data".to_string()),
                }
            }
            Self::Python { turns } => result(printed, python_result(*turns, seed % 1000)),
        };
        right.map_err(|why| ProgramError::Wrong {
            program: self.name(),
            why,
        })
    }
}

impl Program for Batch {
    fn name(&self) -> String {
        match self {
            Self::Gcc { .. } => "gcc".into(),
            Self::Zstd { .. } => "zstd".into(),
            Self::Python { .. } => "python".into(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Gcc { functions } => format!("gcc -O2 on a file of {functions} functions"),
            Self::Zstd { bytes } => format!("zstd -19 -T1 on {bytes} bytes"),
            Self::Python { turns } => format!("python3, {turns} turns of a loop over a dictionary"),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![time_ns()]
    }

    fn needs(&self) -> Needs {
        let (memory_bytes, disk_bytes) = match self {
            Self::Gcc { functions } => ((64 << 20) + functions * 200_000, functions * 2000),
            Self::Zstd { bytes } => ((128 << 20) + 2 * bytes, 2 * bytes),
            Self::Python { .. } => (64 << 20, 1 << 20),
        };
        Needs {
            memory_bytes,
            disk_bytes: disk_bytes + (1 << 20),
        }
    }

    fn seconds(&self) -> f64 {
        0.5 + match self {
            Self::Gcc { functions } => *functions as f64 * GCC_FUNCTION_S,
            Self::Zstd { bytes } => *bytes as f64 * ZSTD_BYTE_S,
            Self::Python { turns } => *turns as f64 * PYTHON_TURN_S,
        }
    }

    fn ready(&self) -> Result<(), ProgramError> {
        self.program().map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let mut session = Session::new(self.name(), launch, watch);
        let job = self.job(launch)?;
        let (wall_ns, task) = run_to_end(&mut session, &job.argv, false)?;
        self.verify(&session, &job, &tail(&task.stdout, 1 << 20))?;
        let mut figures = Figures::default();
        figures.values.insert("elapsed_ns".into(), wall_ns as f64);
        Ok(figures)
    }
}
