//! Every program that an experiment can run, by name: the built-in workloads and the real programs.

use super::batch::Batch;
use super::builtin::{builtin, Builtin};
use super::mariadb::MariaDb;
use super::memcached::Memcached;
use super::real;
use super::redis::Redis;
use super::sqlite::Sqlite;
use super::Program;

/// A program of any size.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name of the program.
    pub name: &'static str,
    /// A line of help.
    pub help: &'static str,
    /// Creates it. Scale 1 is the paper's size, or one for 16 GB where there is no paper.
    pub make: fn(scale: f64) -> Box<dyn Program>,
}

/// All of them, in the order in which they are listed.
#[must_use]
pub fn catalogue() -> &'static [Entry] {
    CATALOGUE
}

/// The entry of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

/// A built-in workload with options, in this many processes.
///
/// # Panics
/// When the workload does not take the options; a test creates every entry.
fn workload_of(name: &str, options: &[(&str, String)], instances: usize) -> Builtin {
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    builtin(name, &options, instances).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn workload(name: &str, options: &[(&str, String)], instances: usize) -> Box<dyn Program> {
    Box::new(workload_of(name, options, instances))
}

fn renamed(program: Builtin, name: &str) -> Box<dyn Program> {
    let name = name.to_string();
    Box::new(Builtin { name, ..program })
}

/// Scaled mebibytes, at least a few regions.
fn mib(full: f64, scale: f64) -> String {
    format!("{:.0}", (full * scale).max(16.0))
}

/// Time to serve: enough for scans, promotions and a settled part.
fn serve() -> (&'static str, String) {
    ("seconds", "120".to_string())
}

/// The papers' minute.
fn minute() -> (&'static str, String) {
    ("seconds", "60".to_string())
}

static CATALOGUE: &[Entry] = &[
    Entry {
        name: "gups",
        help: "random updates of 8 GB of 64-bit integers",
        make: |scale| {
            workload(
                "gups",
                &[
                    ("mib", mib(8192.0, scale)),
                    ("seconds", "180".to_string()),
                    ("check", String::new()),
                ],
                1,
            )
        },
    },
    Entry {
        name: "gups-work",
        help: "2^29 random updates of 8 GB: a fixed amount of work (LRBHPS, table 5)",
        make: |scale| {
            let updates = f64::from(1 << 29) * scale;
            let sizes = [
                ("mib", mib(8192.0, scale)),
                ("updates", format!("{:.0}", updates.max(1000.0))),
                ("check", String::new()),
            ];
            renamed(workload_of("gups", &sizes, 1), "gups-work")
        },
    },
    Entry {
        name: "touch",
        help: "first touch of 4 GB, page by page",
        make: |scale| workload("touch", &[("mib", mib(4096.0, scale))], 1),
    },
    Entry {
        name: "chunks",
        help: "twice 6 GB in chunks of 32 MB, a sixth used (MEGA, table 4)",
        make: |scale| workload("chunks", &[("mib", mib(6144.0, scale)), minute()], 2),
    },
    Entry {
        name: "churn",
        help: "8 GB allocated, iterated over and freed, 10 times (MEGA, table 5)",
        make: |scale| workload("churn", &[("mib", mib(8192.0, scale)), ("times", "10".into())], 1),
    },
    Entry {
        name: "stride",
        help: "6 GB in steps of 32 KB, shifted by 8 bytes (MEGA, table 6)",
        make: |scale| workload("stride", &[("mib", mib(6144.0, scale)), ("times", "2".into())], 1),
    },
    Entry {
        name: "sizes",
        help: "objects of 8 KB to 128 MB, 10 GB of each (MEGA, figure 1)",
        make: |scale| workload("sizes", &[("mib", mib(10240.0, scale))], 1),
    },
    Entry {
        name: "holes",
        help: "12 GB, half of it freed in pieces of 1 MB, three minutes (MEGA, figure 2)",
        make: |scale| {
            let seconds = ("seconds", "180".to_string());
            workload("holes", &[("mib", mib(12288.0, scale)), seconds], 1)
        },
    },
    Entry {
        name: "kv",
        help: "a hash table of 4 GB with Zipf keys: reads, inserts, deletes",
        make: |scale| workload("kv", &[("mib", mib(4096.0, scale)), serve()], 1),
    },
    Entry {
        name: "graph",
        help: "page rank on a generated graph",
        make: |scale| {
            // A power of two, the nearest below: 2^24 vertices and 16 times as many edges take about 1.5 GB.
            let power = (24.0 + scale.log2()).floor().clamp(16.0, 28.0);
            workload("graph", &[("scale", power.to_string()), ("iterations", "10".into())], 1)
        },
    },
    Entry {
        name: "gups-heap",
        help: "2^29 random updates of 3 GB from malloc: a fixed amount of work",
        make: |scale| {
            let updates = f64::from(1 << 29) * scale;
            let sizes = [
                ("mib", mib(3072.0, scale)),
                ("updates", format!("{:.0}", updates.max(1000.0))),
                ("check", String::new()),
                ("heap", String::new()),
            ];
            renamed(workload_of("gups", &sizes, 1), "gups-heap")
        },
    },
    Entry {
        name: "graph-heap",
        help: "page rank on a generated graph of 1.3 GB that malloc gave",
        make: |scale| {
            let power = (23.0 + scale.log2()).floor().clamp(12.0, 28.0);
            let sizes = [
                ("scale", power.to_string()),
                ("iterations", "10".into()),
                ("heap", String::new()),
            ];
            renamed(workload_of("graph", &sizes, 1), "graph-heap")
        },
    },
    Entry {
        name: "simplex",
        help: "a network simplex on 2 GB of arcs and nodes, as 429.mcf does",
        make: |scale| {
            let visits = format!("{:.0}", (5e8 * scale).max(1e6));
            workload("simplex", &[("mib", mib(2048.0, scale)), ("visits", visits)], 1)
        },
    },
    Entry {
        name: "events",
        help: "a discrete event simulation of 2 GB of small objects, as 471.omnetpp does",
        make: |scale| {
            let events = format!("{:.0}", (4e6 * scale).max(1e5));
            workload("events", &[("mib", mib(2048.0, scale)), ("events", events)], 1)
        },
    },
    Entry {
        name: "paths",
        help: "path finding on maps and with nodes of 2 GB, as 473.astar does",
        make: |scale| {
            let cells = format!("{:.0}", (2e7 * scale).max(1e5));
            workload("paths", &[("mib", mib(2048.0, scale)), ("cells", cells)], 1)
        },
    },
    Entry {
        name: "btree",
        help: "inserts and lookups in a B-tree of 4 GB",
        make: |scale| workload("btree", &[("mib", mib(4096.0, scale)), serve()], 1),
    },
    Entry {
        name: "compute",
        help: "a computation that stays in the caches",
        make: |scale| {
            workload(
                "compute",
                &[("passes", format!("{:.0}", (20_000.0 * scale).max(100.0)))],
                1,
            )
        },
    },
    Entry {
        name: "store",
        help: "a store: 2 GB dense and hot, 4 GB of which a scattered sixth is used",
        make: |scale| {
            let sizes = [
                ("dense-mib", mib(2048.0, scale)),
                ("sparse-mib", mib(4096.0, scale)),
                serve(),
            ];
            workload("store", &sizes, 1)
        },
    },
    Entry {
        name: "demo",
        help: "the store, smaller and shorter: 1 GB dense, 3 GB of which a sixth is used",
        make: |scale| {
            let seconds = ("seconds", "30".to_string());
            let sizes = [
                ("dense-mib", mib(1024.0, scale)),
                ("sparse-mib", mib(3072.0, scale)),
                seconds,
            ];
            renamed(workload_of("store", &sizes, 1), "demo")
        },
    },
    Entry {
        name: "sparse",
        help: "a scattered sixth of 6 GB, held",
        make: |scale| workload("sparse", &[("mib", mib(6144.0, scale)), serve()], 1),
    },
    Entry {
        name: "gups-first",
        help: "random updates of 4 GB of 64-bit integers, the first 15 s",
        make: |scale| {
            let sizes = [
                ("mib", mib(4096.0, scale)),
                ("seconds", format!("{:.1}", (15.0 * scale).clamp(0.5, 15.0))),
                ("check", String::new()),
            ];
            renamed(workload_of("gups", &sizes, 1), "gups-first")
        },
    },
    Entry {
        name: "rehash",
        help: "a hash table that doubles up to 1 GB, then lookups",
        make: |scale| {
            let seconds = ("seconds", format!("{:.1}", (10.0 * scale).clamp(0.5, 10.0)));
            workload("rehash", &[("mib", mib(1024.0, scale)), seconds], 1)
        },
    },
    Entry {
        name: "grow",
        help: "an array that realloc grows to 2 GB, three times",
        make: |scale| workload("grow", &[("mib", mib(2048.0, scale)), ("times", "3".into())], 1),
    },
    Entry {
        name: "again",
        help: "an array of 1 GB allocated, written and freed, 20 times",
        make: |scale| {
            let sizes = [
                ("mib", mib(1024.0, scale)),
                ("times", "20".into()),
                ("whole", String::new()),
            ];
            renamed(workload_of("churn", &sizes, 1), "again")
        },
    },
    Entry {
        name: "scattered",
        help: "a scattered sixth of 3 GB, held for 10 s",
        make: |scale| {
            let seconds = ("seconds", format!("{:.1}", (10.0 * scale).clamp(0.5, 10.0)));
            renamed(
                workload_of("sparse", &[("mib", mib(3072.0, scale)), seconds], 1),
                "scattered",
            )
        },
    },
    Entry {
        name: "arenas",
        help: "8 threads with 2 GB of small objects, half of them replaced 4 times",
        make: |scale| workload("arenas", &[("mib", mib(2048.0, scale))], 1),
    },
    Entry {
        name: "forks",
        help: "a fork server with 1 GB: 200 children that write 200 pages each",
        make: |scale| {
            let times = ("times", format!("{:.0}", (200.0 * scale).max(5.0)));
            workload("forks", &[("mib", mib(1024.0, scale)), times], 1)
        },
    },
    Entry {
        name: "redis-set",
        help: "2 M sets of 4 KB into an empty Redis (MEGA, tables 1 and 2)",
        make: |scale| Box::new(Redis::set(scale)),
    },
    Entry {
        name: "redis-hset",
        help: "2 M hsets of 4 KB, three quarters removed, the rest read (MEGA, table 3)",
        make: |scale| Box::new(Redis::hset(scale)),
    },
    Entry {
        name: "redis-cold",
        help: "1 M sets of 4 KB into an empty Redis (LRBHPS, table 2)",
        make: |scale| Box::new(Redis::cold(scale)),
    },
    Entry {
        name: "redis-warm",
        help: "gets and sets of 4 KB, 5:5, in a loaded Redis (LRBHPS, table 3)",
        make: |scale| Box::new(Redis::warm(scale)),
    },
    Entry {
        name: "redis-del-50",
        help: "1.4 M sets of 8 KB, half of them deleted at random (LRBHPS, table 4)",
        make: |scale| Box::new(Redis::del_50(scale)),
    },
    Entry {
        name: "redis-del-70",
        help: "1.4 M sets of 8 KB, 70 % of them deleted at random (LRBHPS, table 4)",
        make: |scale| Box::new(Redis::del_70(scale)),
    },
    Entry {
        name: "redis-range-xl",
        help: "20 k sets of 256 B to 1 MB (LRBHPS, table 4)",
        make: |scale| Box::new(Redis::range_xl(scale)),
    },
    Entry {
        name: "redis-range-s",
        help: "5 M sets of 256 B to 16 KB: 47 GB at scale 1 (LRBHPS, table 4)",
        make: |scale| Box::new(Redis::range_s(scale)),
    },
    Entry {
        name: "redis-2m",
        help: "40 k sets of 2 MB by 50 clients: 84 GB at scale 1 (MEGA, tables 9 and 10)",
        make: |scale| Box::new(Redis::big(scale)),
    },
    Entry {
        name: "redis-2m-after",
        help: "the same, and five idle minutes after it (MEGA, section 4.5)",
        make: |scale| Box::new(Redis::big_after(scale)),
    },
    Entry {
        name: "memcached",
        help: "gets and sets of 4 KB, 9:1, by a Zipf law, in a loaded memcached",
        make: |scale| Box::new(Memcached::zipf(scale)),
    },
    Entry {
        name: "mariadb",
        help: "sysbench oltp_read_only on MariaDB, 30 M rows (MEGA, table 8)",
        make: |scale| Box::new(MariaDb::read_only(scale)),
    },
    Entry {
        name: "sqlite",
        help: "a database in memory: filled, indexed, joined, updated",
        make: |scale| Box::new(Sqlite::in_memory(scale)),
    },
    Entry {
        name: "gcc",
        help: "compiles a generated file; huge pages do little for it",
        make: |scale| Box::new(Batch::gcc(scale)),
    },
    Entry {
        name: "zstd",
        help: "compresses generated data; huge pages do little for it",
        make: |scale| Box::new(Batch::zstd(scale)),
    },
    Entry {
        name: "python",
        help: "a loop in Python; huge pages do little for it",
        make: |scale| Box::new(Batch::python(scale)),
    },
    Entry {
        name: "numpy",
        help: "NumPy and SciPy: arrays, a sparse matrix, FFT; installs them by pip",
        make: |scale| Box::new(real::NUMPY.job(scale)),
    },
    Entry {
        name: "duckdb",
        help: "DuckDB: a join and a group-by; installs it by pip",
        make: |scale| Box::new(real::DUCKDB.job(scale)),
    },
    Entry {
        name: "clickhouse",
        help: "ClickHouse in one process: a join and a group-by over 40 M rows",
        make: |scale| Box::new(real::CLICKHOUSE.job(scale)),
    },
    Entry {
        name: "postgresql",
        help: "a PostgreSQL backend: sorts and hashes of 10 M rows",
        make: |scale| Box::new(real::POSTGRESQL.job(scale)),
    },
    Entry {
        name: "sklearn",
        help: "scikit-learn: boosting and k-means; installs it by pip",
        make: |scale| Box::new(real::SKLEARN.job(scale)),
    },
    Entry {
        name: "jvm",
        help: "a JVM: a hash map of small objects under G1",
        make: |scale| Box::new(real::JVM.job(scale)),
    },
    Entry {
        name: "go",
        help: "Go: maps in four goroutines under its collector",
        make: |scale| Box::new(real::GO.job(scale)),
    },
    Entry {
        name: "node",
        help: "Node: a map of objects and buffers",
        make: |scale| Box::new(real::NODE.job(scale)),
    },
    Entry {
        name: "workers",
        help: "Python: four forked workers, copies on write",
        make: |scale| Box::new(real::WORKERS.job(scale)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_the_name_by_which_it_is_found_and_knows_what_it_needs() {
        for entry in catalogue() {
            let program = (entry.make)(0.01);
            assert_eq!(program.name(), entry.name);
            assert!(std::ptr::eq(find(entry.name).unwrap(), entry));
            assert!(!program.metrics().is_empty() && !program.describe().is_empty());
            assert!(program.metrics().iter().any(|metric| metric.main));
            assert!(program.needs().memory_bytes > 0 && program.seconds() > 0.0);
            assert!((entry.make)(1.0).needs().memory_bytes >= program.needs().memory_bytes);
            assert!(entry.help.len() <= 80, "{}", entry.name);
        }
        assert!(find("no-such-program").is_none());
    }
}
