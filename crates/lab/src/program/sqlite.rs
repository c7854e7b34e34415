//! SQLite with an in-memory database: filled, indexed, joined, updated and summed by one script through its shell. The sums are
//! known in advance.

use std::ffi::OsString;

use super::command::run_to_end;
use super::support::{need, scaled, system, tail, time_ns, Session};
use super::{Figures, Launch, Needs, Program, ProgramError, Watch};
use crate::result::Metric;

/// How to install it.
const INSTALL: &str = "apt install sqlite3, or dnf install sqlite";

/// Bytes of text in a row.
const TEXT_BYTES: u64 = 200;

/// Estimated bytes of a row, with its index entry.
const ROW_BYTES: u64 = TEXT_BYTES + 40;

/// The script looks up one row in this many.
const LOOKED_UP: u64 = 4;

/// A prime: values are below it.
const PRIME: u64 = 1_000_003;

/// Estimated time of a row, in total.
const PER_ROW_S: f64 = 4e-6;

/// A database in memory.
#[derive(Debug, Clone)]
pub struct Sqlite {
    /// Rows of its table.
    pub rows: u64,
}

impl Sqlite {
    /// 20 M rows, 5 GB.
    #[must_use]
    pub fn in_memory(scale: f64) -> Self {
        Self {
            rows: scaled(20_000_000, scale, 1000),
        }
    }

    /// What the script does, in SQL. Rows are 0 to rows-1; the value of row i is (i·7919 + seed) mod prime.
    fn script(&self, seed: u64) -> String {
        let (rows, seed) = (self.rows, seed % PRIME);
        format!(
            ".bail on\n\
             PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=MEMORY;\n\
             CREATE TABLE t(id INTEGER PRIMARY KEY, value INTEGER, text TEXT);\n\
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i+1<{rows})\n\
             INSERT INTO t SELECT i, (i*7919+{seed})%{PRIME}, printf('%0{TEXT_BYTES}d', i) FROM n;\n\
             CREATE INDEX by_value ON t(value);\n\
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+{LOOKED_UP} FROM n WHERE i+{LOOKED_UP}<{rows})\n\
             SELECT 'sum', sum(b.value), sum(length(b.text)) FROM n JOIN t AS b ON b.id=(n.i*48271)%{rows};\n\
             UPDATE t SET value=value+1 WHERE id%2=0;\n\
             SELECT 'sum', sum(value), sum(length(text)) FROM t;\n\
             SELECT 'sum', count(*), sum(id) FROM t WHERE value<1000;\n"
        )
    }

    /// What the script must print.
    fn expected(&self, seed: u64) -> String {
        let (rows, seed) = (self.rows, seed % PRIME);
        let value = |i: u64| (i * 7919 + seed) % PRIME;
        let after = |i: u64| value(i) + u64::from(i % 2 == 0);
        let looked_up = (0..rows).step_by(LOOKED_UP as usize).map(|i| value(i * 48271 % rows));
        let small = (0..rows).filter(|i| after(*i) < 1000);
        let (count, ids) = small.fold((0, 0), |(count, ids), i| (count + 1u64, ids + i));
        format!(
            "sum|{}|{}\nsum|{}|{}\nsum|{count}|{ids}\n",
            looked_up.sum::<u64>(),
            rows.div_ceil(LOOKED_UP) * TEXT_BYTES,
            (0..rows).map(after).sum::<u64>(),
            rows * TEXT_BYTES,
        )
    }
}

impl Program for Sqlite {
    fn name(&self) -> String {
        "sqlite".into()
    }

    fn describe(&self) -> String {
        format!(
            "sqlite3, {} rows in memory: insert, index, look up, update, sum",
            self.rows
        )
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![time_ns()]
    }

    fn needs(&self) -> Needs {
        Needs {
            memory_bytes: self.rows * ROW_BYTES * 5 / 4 + (32 << 20),
            disk_bytes: 1 << 20,
        }
    }

    fn seconds(&self) -> f64 {
        0.1 + self.rows as f64 * PER_ROW_S
    }

    fn ready(&self) -> Result<(), ProgramError> {
        need("sqlite3", INSTALL).map(drop)
    }

    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError> {
        let shell = need("sqlite3", INSTALL)?;
        let mut session = Session::new(self.name(), launch, watch);
        let script = launch.scratch.join("script.sql");
        let doing = format!("write {}", script.display());
        std::fs::write(&script, self.script(launch.seed)).map_err(system(&doing))?;
        // A read command of the shell, so that no input has to be fed.
        let read = format!(".read '{}'", script.display());
        let argv: Vec<OsString> = vec![
            shell.into(),
            "-batch".into(),
            "-init".into(),
            "/dev/null".into(),
            ":memory:".into(),
            read.into(),
        ];
        let (wall_ns, task) = run_to_end(&mut session, &argv, false)?;
        let printed = tail(&task.stdout, 1 << 20);
        let sums: String = printed
            .lines()
            .filter(|l| l.starts_with("sum"))
            .map(|l| format!("{l}\n"))
            .collect();
        let expected = self.expected(launch.seed);
        if sums != expected {
            return Err(ProgramError::Wrong {
                program: "sqlite3".into(),
                why: format!("its sums are {sums:?}, expected {expected:?}"),
            });
        }
        let mut figures = Figures::default();
        figures.values.insert("elapsed_ns".into(), wall_ns as f64);
        Ok(figures)
    }
}
