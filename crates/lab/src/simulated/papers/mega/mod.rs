//! MEGA (SYSTOR'19): its tables and figures at their sizes, on the laptop with 16 GB and the server with 256 GB.
//!
//! The paper's Figure 3 (PARSEC) is left out: its bars have no numbers in the text, and it does not say how the programs use memory.

use mega_sim::scenario::{Placed, Scenario};
use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::{
    ChunksOptions, ChurnOptions, HolesOptions, KvOptions, SizesOptions, SparseOptions, Spec, StrideOptions,
    TurnoverOptions,
};

use super::machines::{
    base, in_proportion, mib, on_laptop, on_server, published, published_live, redis, runs, watcher, weight,
};
use crate::result::Published;
use crate::simulated::experiment::{Case, Setup, SystemOf};

mod list;

pub(super) use list::LIST;

const BASE: SystemOf = base("Linux 4.16, base pages");
/// Before Linux 5.8 a store to memory that had only been loaded from got a huge page too.
const THP: SystemOf = SystemOf {
    paper: "Linux 4.16, THP",
    live: "thp-always",
    text: "thp-always:huge_after_load=on",
};
/// Ingens compacts the lowest blocks, 100 MB of each zone (section 4.3).
const INGENS: SystemOf = SystemOf {
    paper: "Ingens",
    live: crate::experiment::INGENS,
    text: "ingens:compact=chosen/ingens",
};
/// MEGA evacuates the blocks that it ranks first, 200 MB (section 3.4).
const MEGA: SystemOf = SystemOf {
    paper: "MEGA",
    live: crate::experiment::MEGA,
    text: "mega:compact=chosen/mega",
};
/// Ours: its policy on the same kernel without compaction, to see its effect.
const MEGA_ALONE: SystemOf = super::machines::only("MEGA without compaction", "mega:compact=off");

const FOUR: [SystemOf; 4] = [BASE, THP, INGENS, MEGA];

const UNFRAGMENTED: &str = "nothing else in memory";

fn redis_set(scale: f64) -> Vec<Case> {
    let options = redis("mega-set", scale, 1);
    let program = format!("Redis, {} sets of 4 KB", options.keys);
    let scenario = on_laptop(scale, vec![runs(Spec::Redis(options))]);
    vec![Case::new(
        "redis-set",
        program,
        UNFRAGMENTED,
        in_proportion(scenario, scale),
    )]
}

fn sets(scale: f64) -> String {
    format!("paper: 2 million sets of 4 KB on 16 GB; here {scale} of that")
}

fn setup(
    cases: Vec<Case>,
    systems: &[SystemOf],
    main: &[&'static str],
    published: Vec<Published>,
    size: String,
) -> Setup {
    Setup {
        cases,
        systems: systems.to_vec(),
        main: main.to_vec(),
        published,
        speedup_of: None,
        size,
    }
}

fn table1(scale: f64) -> Setup {
    // Loads and stores together, as the model counts them. Instruction misses are left out.
    let tlb = |walks: f64, cycles: f64| vec![("tlb_walks", walks), ("tlb_walk_cycles", cycles)];
    let place = "Table 1, data loads and stores";
    setup(
        redis_set(scale),
        &[BASE, THP, MEGA],
        &["elapsed_ns", "tlb_walks", "tlb_walk_cycles", "rss_bytes", "huge_bytes"],
        [
            published_live("mega-table1", &FOUR, &[]),
            published(place, None, &BASE, &tlb(70_996_819.0 + 9_496_490.0, 1_358_301_181.0)),
            published(place, None, &THP, &tlb(315_154.0 + 40_932.0, 18_422_086.0)),
        ]
        .concat(),
        sets(scale),
    )
}

fn table2(scale: f64) -> Setup {
    setup(
        redis_set(scale),
        &[BASE, THP],
        &[
            "faults",
            "fault_mean_ns",
            "fault_p90_ns",
            "fault_p99_ns",
            "fault_p999_ns",
        ],
        published_live("mega-table2", &FOUR, &[]),
        sets(scale),
    )
}

fn table3(scale: f64) -> Setup {
    setup(
        redis_set(scale),
        &FOUR,
        &[
            "fault_mean_ns",
            "fault_p90_ns",
            "fault_p99_ns",
            "fault_p999_ns",
            "elapsed_ns",
            "huge_bytes",
        ],
        published_live("mega-table3", &FOUR, &[]),
        sets(scale),
    )
}

fn bloat(scale: f64) -> Setup {
    let options = RedisOptions {
        // jemalloc returns memory within ten seconds.
        rest_ns: 20_000_000_000,
        ..redis("mega-hset", scale, 1)
    };
    let program = format!(
        "Redis, {} hsets of 4 KB, 6 of 8 GB removed, the rest read",
        options.keys
    );
    let scenario = on_laptop(scale, vec![runs(Spec::Redis(options))]);
    setup(
        vec![Case::new("redis-hset", program, UNFRAGMENTED, scenario)],
        &FOUR,
        &["taken_bytes", "rss_bytes", "huge_bytes", "waste_bytes"],
        published_live("mega-bloat", &FOUR, &[]),
        format!("paper: 2 million hsets of 4 KB on 16 GB, 6 GB removed; here {scale} of that"),
    )
}

fn table4(scale: f64) -> Setup {
    let chunks = |seed| {
        let run = Spec::Chunks(ChunksOptions {
            mib: mib(6144, scale),
            chunk_mib: mib(6144, scale).min(32),
            weight: weight(64, scale),
            seed,
            ..ChunksOptions::default()
        });
        Placed {
            name: Some(format!("chunks-{seed}")),
            ..runs(run)
        }
    };
    let before = |blocks| [("free_blocks_before", blocks)];
    setup(
        vec![Case::new(
            "chunks",
            "two programs of 6 GB in chunks of 32 MB, one in six used for a minute",
            UNFRAGMENTED,
            on_laptop(scale, vec![chunks(1), chunks(2)]),
        )],
        &FOUR,
        &[
            "huge_bytes",
            "free_blocks_before",
            "free_blocks",
            "taken_bytes",
            "ops_per_s",
        ],
        [
            published_live("mega-table4", &FOUR, &[]),
            published("Table 4", None, &INGENS, &before(6710.0)),
            published("Table 4", None, &MEGA, &before(6733.0)),
        ]
        .concat(),
        format!("paper: two programs of 6 GB on 16 GB for a minute; here {scale} of the memory"),
    )
}

/// Rounds that are simulated of the paper's fifty.
const CHURNS: u32 = 10;

fn table5(scale: f64) -> Setup {
    let run = Spec::Churn(ChurnOptions {
        mib: mib(8192, scale),
        times: CHURNS,
        ..ChurnOptions::default()
    });
    let scenario = in_proportion(on_laptop(scale, vec![runs(run)]), scale);
    setup(
        vec![Case::new("churn", "8 GB allocated, traversed and freed, repeatedly", UNFRAGMENTED, scenario)],
        &FOUR,
        &["fifty_rounds_ns", "promoted", "waited_ns"],
        published_live("mega-table5", &FOUR, &[("elapsed_ns", "fifty_rounds_ns")]),
        format!("paper: 8 GB on 16 GB, fifty times; here {scale} of the memory, {CHURNS} times, and the time of fifty from that"),
    )
}

fn table6(scale: f64) -> Setup {
    let run = Spec::Stride(StrideOptions {
        mib: mib(6144, scale),
        weight: 128,
        ..StrideOptions::default()
    });
    let scenario = in_proportion(on_laptop(scale, vec![runs(run)]), scale);
    setup(
        vec![Case::new("stride", "6 GB visited in steps of 32 KB, shifted by 8 B, ten times", UNFRAGMENTED, scenario)],
        &FOUR,
        &["elapsed_ns", "op_ns", "huge_bytes"],
        published_live("mega-table6", &FOUR, &[]),
        format!("paper: 6 GB on 16 GB, ten passes; here {scale} of the memory, and of 128 shifts in a row two are simulated"),
    )
}

fn fig1(scale: f64) -> Setup {
    let sizes = Spec::Sizes(SizesOptions {
        mib: mib(10_240, scale),
        pause_ns: 5_000_000_000,
        ..SizesOptions::default()
    });
    let sparse = Placed {
        name: Some("sparse".to_string()),
        ..runs(Spec::Sparse(SparseOptions {
            mib: mib(6 * 420, scale),
            ..SparseOptions::default()
        }))
    };
    let contiguous = |before: f64, after: f64, after_large: f64| {
        vec![
            ("contiguous_before_bytes", before),
            ("contiguous_8k_bytes", after),
            ("contiguous_32m_bytes", after_large),
        ]
    };
    setup(
        vec![Case::new(
            "sizes",
            "10 GB as objects of 8 KB to 128 MB, allocated and freed, beside 420 MB that are scattered",
            UNFRAGMENTED,
            on_laptop(scale, vec![runs(sizes), sparse]),
        )
        .beside(1)],
        &[THP, BASE, MEGA],
        &[
            "contiguous_before_bytes",
            "contiguous_8k_bytes",
            "contiguous_128k_bytes",
            "contiguous_1m_bytes",
            "contiguous_8m_bytes",
            "contiguous_32m_bytes",
            "contiguous_128m_bytes",
        ],
        published("Figure 1 and section 3.4", None, &THP, &contiguous(10.9e9, 8.3e9, 0.0)),
        format!("paper: 10 of 16 GB for each size; here {scale} of that"),
    )
}

fn holes(scale: f64) -> Vec<Case> {
    let run = Placed {
        exits: true,
        ..runs(Spec::Holes(HolesOptions {
            mib: mib(12_288, scale),
            weight: weight(16, scale),
            ..HolesOptions::default()
        }))
    };
    vec![Case::new(
        "holes",
        "12 GB traversed, half of it freed in pieces of 1 MB, the rest used for two minutes; a minute more",
        UNFRAGMENTED,
        on_laptop(scale, vec![run, watcher(186)]),
    )
    .beside(1)]
}

const COMPACTORS: [SystemOf; 4] = [INGENS, MEGA, MEGA_ALONE, BASE];

fn fig2(scale: f64) -> Setup {
    setup(
        holes(scale),
        &COMPACTORS,
        &[
            "free_blocks_before",
            "free_blocks_mean",
            "free_blocks",
            "pgmigrate_success",
            "ops_per_s",
        ],
        [
            published("section 4.3", None, &INGENS, &[("free_blocks_before", 6800.0)]),
            published("section 4.3", None, &MEGA, &[("free_blocks_before", 6800.0)]),
        ]
        .concat(),
        format!("paper: 12 of 16 GB, three minutes; here {scale} of the memory"),
    )
}

fn table7(scale: f64) -> Setup {
    let per_pass = |[scanned, free, isolated, migrated, failed]: [f64; 5]| {
        vec![
            ("migrate_scanned_per_pass", scanned),
            ("free_scanned_per_pass", free),
            ("isolated_per_pass", isolated),
            ("migrated_per_pass", migrated),
            ("failed_per_pass", failed),
        ]
    };
    let ingens = per_pass([55_256.0, 149_993.0, 2918.0, 1432.0, 1.16]);
    let mega = per_pass([7537.0, 350_702.0, 14_906.0, 7352.0, 0.94]);
    setup(
        holes(scale),
        &COMPACTORS[..2],
        &[
            "migrate_scanned_per_pass",
            "free_scanned_per_pass",
            "isolated_per_pass",
            "migrated_per_pass",
            "failed_per_pass",
            "compactions",
        ],
        [
            published("Table 7", None, &INGENS, &ingens),
            published("Table 7", None, &MEGA, &mega),
        ]
        .concat(),
        format!("paper: 12 of 16 GB, three minutes; here {scale} of the memory"),
    )
}

fn table8(scale: f64) -> Setup {
    let run = Spec::Kv(KvOptions {
        mib: mib(6144, scale),
        value_bytes: 208,
        time_ns: 60_000_000_000,
        reads: 1.0,
        weight: weight(10, scale),
        ..KvOptions::default()
    });
    // The paper's table says µs; eight threads with 4,661 to 6,057 transactions a second mean ms.
    let rows = |[min, mean, max, p95]: [f64; 4]| {
        vec![
            ("read_min_ns", min * 1e6),
            ("read_mean_ns", mean * 1e6),
            ("read_max_ns", max * 1e6),
            ("read_p95_ns", p95 * 1e6),
        ]
    };
    setup(
        vec![Case::new(
            "mysql",
            "a table of 30 million rows of 208 B in memory, read by Zipf's law for a minute",
            UNFRAGMENTED,
            on_laptop(scale, vec![runs(run)]),
        )],
        &FOUR,
        &[
            "ops_per_s",
            "read_mean_ns",
            "read_p95_ns",
            "read_min_ns",
            "read_max_ns",
            "huge_bytes",
        ],
        [
            published_live("mega-table8", &FOUR, &[]),
            published("Table 8", None, &MEGA, &rows([0.76, 1.44, 54.01, 2.18])),
            published("Table 8", None, &INGENS, &rows([0.68, 1.71, 108.12, 3.62])),
            published("Table 8", None, &BASE, &rows([0.74, 1.63, 11.66, 3.07])),
            published("Table 8", None, &THP, &rows([0.85, 1.32, 64.94, 1.76])),
        ]
        .concat(),
        format!("paper: 30 million rows, 8 threads, a minute; here {scale} of the rows, one thread"),
    )
}

fn big(scale: f64) -> Scenario {
    let turnover = Placed {
        name: Some("turnover".to_string()),
        ..runs(Spec::Turnover(TurnoverOptions {
            mib: mib(200 << 10, scale),
            round_mib: mib(100 << 10, scale),
            ..TurnoverOptions::default()
        }))
    };
    let options = redis("mega-big", scale, 50);
    let redis = Placed {
        after: Some(1),
        node: 1,
        ..runs(Spec::Redis(options))
    };
    in_proportion(on_server(scale, vec![redis, turnover]), scale)
}

fn tables9_10(scale: f64) -> Setup {
    let rest = |p9999: f64, small: f64, large: f64| {
        vec![
            ("request_p9999_ns", p9999 * 1e6),
            ("free_2m_runs", small),
            ("free_4m_runs", large),
        ]
    };
    setup(
        vec![Case::new(
            "redis-2m",
            "Redis, 40,000 sets of 2 MB by 50 clients, after 200 GB were allocated and half of it freed in pieces of 1 MB, and 100 GB allocated and freed five times",
            "100 of 256 GB in use, the rest fragmented",
            big(scale),
        )
        .beside(1)],
        &[INGENS, MEGA],
        &[
            "ops_per_s",
            "request_p99_ns",
            "request_p999_ns",
            "request_p9999_ns",
            "elapsed_ns",
            "free_2m_runs",
            "free_4m_runs",
            "free_blocks",
        ],
        [
            published_live("mega-tables-9-10", &FOUR, &[]),
            published("Tables 9 and 10", None, &INGENS, &rest(505.0, 42.0, 58.0)),
            published("Tables 9 and 10", None, &MEGA, &rest(266.0, 14.0, 1146.0)),
        ]
        .concat(),
        format!("paper: 40,000 sets of 2 MB on 256 GB; here {scale} of that"),
    )
}
