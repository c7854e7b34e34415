//! MariaDB under sysbench's read-only transactions, as in MEGA's table 8. A private server with its data and socket in the
//! scratch folder, without a port. The table's checksum must not change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex::Regex;

use super::support::{detail, last_line, metric, need, scaled, tail, Ender, Session, LOOK_EVERY};
use super::task::Task;
use super::{Figures, Launch, Needs, Own, Program, ProgramError, Watch};
use crate::memory::keep_thp_after_exec;
use crate::result::{Better, Metric, Unit};

/// How to install all of it.
const INSTALL: &str = "apt install mariadb-server sysbench, or dnf install mariadb-server sysbench";

/// Time limits for starting and stopping.
const PATIENCE: Duration = Duration::from_secs(60);

/// About what a row of sysbench's table takes in InnoDB's pages, with its index.
const ROW_BYTES: u64 = 230;

/// About what making the database and starting the server take here.
const STARTING_S: f64 = 5.0;

/// About what filling and reading a row take here.
const PER_ROW_S: f64 = 10e-6;

/// A socket's path has 108 bytes at most, with its end.
const MOST_SOCKET_BYTES: usize = 107;

/// A database with one table.
#[derive(Debug, Clone)]
pub struct MariaDb {
    /// Rows of the table.
    pub rows: u64,
    /// Threads of sysbench, each with a connection.
    pub threads: usize,
    /// How long it serves.
    pub serve: Duration,
}

/// Its programs.
#[derive(Debug)]
struct Parts {
    install: PathBuf,
    server: PathBuf,
    client: PathBuf,
    sysbench: PathBuf,
}

impl Parts {
    fn find() -> Result<Self, ProgramError> {
        Ok(Self {
            install: need("mariadb-install-db", INSTALL)?,
            server: need("mariadbd", INSTALL)?,
            client: need("mariadb", INSTALL)?,
            sysbench: need("sysbench", INSTALL)?,
        })
    }
}

fn words<const N: usize>(program: &Path, words: [&str; N]) -> Vec<OsString> {
    std::iter::once(program.into()).chain(words.map(Into::into)).collect()
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value);
    option
}

/// The last number that `regex` finds in `text`.
fn number(text: &str, regex: &str) -> Option<f64> {
    let regex = Regex::new(regex).ok()?;
    regex.captures_iter(text).last()?.get(1)?.as_str().parse().ok()
}

/// What sysbench prints at its end, in base units.
fn parse(text: &str) -> Option<Figures> {
    let ms = |name| number(text, &format!(r"(?m)^\s*{name}:\s+([\d.]+)\s*$")).map(|ms| ms * 1e6);
    let values = [
        ("ops_per_s", number(text, r"transactions:\s+\d+\s+\(([\d.]+) per sec")?),
        ("request_min_ns", ms("min")?),
        ("request_mean_ns", ms("avg")?),
        ("request_p95_ns", ms("95th percentile")?),
        ("request_max_ns", ms("max")?),
    ];
    Some(Figures {
        values: values.map(|(name, value)| (name.into(), value)).into(),
        ..Figures::default()
    })
}

impl MariaDb {
    /// MEGA, table 8: 30 M rows, 8 threads, 1 minute.
    #[must_use]
    pub fn read_only(scale: f64) -> Self {
        Self {
            rows: scaled(30_000_000, scale, 1000),
            threads: 8,
            serve: Duration::from_secs(60),
        }
    }

    /// The buffer pool holds the whole table, in InnoDB's steps.
    fn pool_bytes(&self) -> u64 {
        const STEP: u64 = 128 << 20;
        let table = self.rows * ROW_BYTES;
        (table + table / 4).next_multiple_of(STEP) + STEP
    }

    /// Runs a helper command on the client's processor and returns its output.
    fn help(
        &self,
        (session, tag): (&mut Session, &str),
        argv: &[OsString],
        mut look: impl FnMut(&str, &mut Session),
    ) -> Result<String, ProgramError> {
        let mut task = Task::start_stopped(session, tag, argv, session.launch.client_cpu, &Own::default(), |c| c)?;
        task.go()?;
        let ended = task.wait(session, |task, session| {
            look(&tail(&task.stdout, 4096), session);
            Ok(())
        });
        match ended {
            // sysbench reports failures on stdout.
            Err(ProgramError::Ended { program, status, said }) if said.is_empty() => Err(ProgramError::Ended {
                program,
                status,
                said: last_line(&task.stdout),
            }),
            other => other.map(|()| tail(&task.stdout, 1 << 20)),
        }
    }

    fn server(&self, parts: &Parts, data: &Path, socket: &Path) -> Vec<OsString> {
        let mut argv = words(
            &parts.server,
            [
                "--no-defaults",
                "--skip-networking",
                "--skip-log-bin",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-doublewrite=OFF",
                "--innodb-log-file-size=256M",
                "--innodb-buffer-pool-dump-at-shutdown=OFF",
                "--innodb-buffer-pool-load-at-startup=OFF",
                "--innodb-fast-shutdown=2",
                "--performance-schema=OFF",
            ],
        );
        // Leave the kernel's hugetlb pool alone.
        argv.push("--large-pages=OFF".into());
        argv.push(format!("--innodb-buffer-pool-size={}", self.pool_bytes()).into());
        argv.extend([
            option("datadir", data),
            option("tmpdir", data),
            option("socket", socket),
        ]);
        argv.push(option("pid-file", &data.join("pid")));
        if rustix::process::geteuid().is_root() {
            argv.push("--user=root".into());
        }
        argv
    }

    fn sysbench(&self, parts: &Parts, socket: &Path, what: &str) -> Vec<OsString> {
        let mut argv = words(
            &parts.sysbench,
            [
                "oltp_read_only",
                "--db-driver=mysql",
                "--mysql-user=root",
                "--mysql-db=sbtest",
                "--tables=1",
            ],
        );
        argv.push(option("mysql-socket", socket));
        let seconds = self.serve.as_secs_f64().ceil();
        argv.extend([
            format!("--table-size={}", self.rows).into(),
            format!("--threads={}", self.threads).into(),
            format!("--time={seconds}").into(),
            "--report-interval=1".into(),
            "--percentile=95".into(),
            what.into(),
        ]);
        argv
    }

    fn query(&self, parts: &Parts, socket: &Path, query: &str) -> Vec<OsString> {
        let mut argv = words(
            &parts.client,
            ["--no-defaults", "--user=root", "--batch", "--skip-column-names"],
        );
        argv.extend([option("socket", socket), "-e".into(), query.into()]);
        argv
    }

    fn wait_until_up(
        &self,
        session: &mut Session,
        parts: &Parts,
        task: &mut Task,
        socket: &Path,
    ) -> Result<(), ProgramError> {
        let end = Instant::now() + PATIENCE;
        let create = self.query(parts, socket, "CREATE DATABASE sbtest");
        loop {
            session.check()?;
            let failed = task.finished(LOOK_EVERY)? || Instant::now() > end;
            if !failed && socket.exists() {
                match self.help((session, "create"), &create, |_, _| {}) {
                    Ok(_) => return Ok(()),
                    Err(ProgramError::Ended { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if failed {
                return Err(ProgramError::Start {
                    program: "mariadbd".into(),
                    why: last_line(&task.stderr),
                });
            }
        }
    }

    fn checksum(&self, session: &mut Session, parts: &Parts, socket: &Path, tag: &str) -> Result<String, ProgramError> {
        let query = self.query(
            parts,
            socket,
            "CHECKSUM TABLE sbtest.sbtest1; SELECT COUNT(*) FROM sbtest.sbtest1",
        );
        self.help((session, tag), &query, |_, _| {})
    }

    fn all(&self, session: &mut Session, parts: &Parts, socket: &Path) -> Result<Figures, ProgramError> {
        session.phase("fill");
        let prepare = self.sysbench(parts, socket, "prepare");
        self.help((session, "prepare"), &prepare, |_, _| {})?;
        session.phase("read");
        let before = self.checksum(session, parts, socket, "checksum-before")?;
        session.phase("serve");
        let run = self.sysbench(parts, socket, "run");
        let mut second = None;
        let text = self.help((session, "run"), &run, |text, session| {
            let now = number(text, r"\[ (\d+)s \]");
            if let (true, Some(rate)) = (now != second, number(text, r"tps: ([\d.]+)")) {
                session.watch.figure("ops_per_s", rate);
                second = now;
            }
        })?;
        session.watch.memory_now("");
        let figures = parse(&text).ok_or_else(|| ProgramError::NoFigure {
            program: "sysbench".into(),
            why: "no transactions per second and latencies in its output".into(),
        })?;
        session.phase("read");
        let after = self.checksum(session, parts, socket, "checksum-after")?;
        let rows = after.lines().last().and_then(|line| line.trim().parse::<u64>().ok());
        if before != after || rows != Some(self.rows) {
            return Err(ProgramError::Wrong {
                program: "mariadbd".into(),
                why: format!("checksum and rows changed from {before:?} to {after:?}"),
            });
        }
        Ok(figures)
    }
}

impl Program for MariaDb {
    fn name(&self) -> String {
        "mariadb".into()
    }

    fn describe(&self) -> String {
        format!(
            "MariaDB, sysbench oltp_read_only on {} rows, {} threads, {} s",
            self.rows,
            self.threads,
            self.serve.as_secs_f64()
        )
    }

    fn metrics(&self) -> Vec<Metric> {
        let of = |name: &str, label: &str| metric(name, label, Unit::Ns, Better::Lower);
        vec![
            metric("ops_per_s", "transactions/s", Unit::PerSecond, Better::Higher),
            detail(of("request_min_ns", "transaction min")),
            of("request_mean_ns", "transaction mean"),
            of("request_p95_ns", "transaction p95"),
            detail(of("request_max_ns", "transaction max")),
        ]
    }

    fn needs(&self) -> Needs {
        Needs {
            memory_bytes: self.pool_bytes() + (512 << 20),
            disk_bytes: self.rows * ROW_BYTES * 3 / 2 + (1 << 30),
        }
    }

    fn seconds(&self) -> f64 {
        STARTING_S + self.rows as f64 * PER_ROW_S + self.serve.as_secs_f64()
    }

    fn ready(&self) -> Result<(), ProgramError> {
        Parts::find().map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let parts = Parts::find()?;
        let mut session = Session::new(self.name(), launch, watch);
        let data = launch.scratch.join("data");
        let socket = launch.scratch.join("s");
        if socket.as_os_str().len() > MOST_SOCKET_BYTES {
            return Err(ProgramError::Start {
                program: "mariadbd".into(),
                why: format!("the path of its socket is too long: {}", socket.display()),
            });
        }
        // With --rpm it does not change the owner of its plugins, which are shared.
        let flags = [
            "--no-defaults",
            "--rpm",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ];
        let mut install = words(&parts.install, flags);
        install.push(option("datadir", &data));
        if rustix::process::geteuid().is_root() {
            install.push("--user=root".into());
        }
        self.help((&mut session, "install"), &install, |_, _| {})?;
        let argv = self.server(&parts, &data, &socket);
        // MariaDB 10.11 disables huge pages for itself while starting, without an option to change that.
        let mut task = Task::start_stopped(
            &session,
            "mariadbd",
            &argv,
            launch.program_cpu,
            &launch.own,
            keep_thp_after_exec,
        )?;
        task.go()?;
        let _ender = Ender::of(task.pid(), launch)?;
        let up = self.wait_until_up(&mut session, &parts, &mut task, &socket);
        session.reason(up)?;
        let _pinned = session.pin_client()?;
        session.watch.process(task.pid())?;
        let result = self.all(&mut session, &parts, &socket);
        let result = match result {
            Err(error) => Err(task.why(error)),
            Ok(figures) => Ok(figures),
        };
        let figures = session.reason(result)?;
        task.terminate(PATIENCE)?;
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysbenchs_figures_come_in_base_units_and_a_page_without_them_is_none() {
        let text = "SQL statistics:\n    transactions:                        55571  (5556.29 per sec.)\n\
                    Latency (ms):\n         min:                                    0.76\n\
                    \x20        avg:                                    1.44\n\
                    \x20        max:                                   54.01\n\
                    \x20        95th percentile:                        2.18\n\
                    \x20        sum:                               79990.37\n";
        let figures = parse(text).unwrap();
        assert_eq!(figures.values["ops_per_s"], 5556.29);
        assert_eq!(figures.values["request_p95_ns"], 2.18e6);
        assert_eq!(figures.values["request_max_ns"], 54.01e6);
        assert_eq!(parse("FATAL: unable to connect"), None);
        let names = MariaDb::read_only(1.0).metrics();
        assert!(names.iter().all(|metric| figures.values.contains_key(&metric.name)));
    }

    #[test]
    fn the_buffer_pool_holds_the_table() {
        let program = MariaDb::read_only(0.1);
        assert!(program.pool_bytes() > program.rows * ROW_BYTES);
        assert!(program.needs().memory_bytes > program.pool_bytes());
    }
}
