//! MEGA (SYSTOR'19): its tables and figures at their sizes, on the laptop with 16 GB and the server with 256 GB.
//!
//! The paper's Figure 3 (PARSEC) is left out: its bars have no numbers in the text, and what the programs do to memory is not said.

use mega_sim::scenario::{Placed, Scenario};
use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::{
    ChunksOptions, ChurnOptions, HolesOptions, KvOptions, SizesOptions, SparseOptions, Spec, StrideOptions,
    TurnoverOptions,
};

use super::experiment::{Case, Experiment, Miss, Setup, SystemOf, Words};
use super::machines::{
    base, in_proportion, mib, on_laptop, on_server, published, published_live, redis, runs, watcher, weight,
};
use crate::result::Published;

const BASE: SystemOf = base("Linux 4.16, base pages");
/// Before Linux 5.8 a store to what was only loaded from got a huge page too.
const THP: SystemOf = SystemOf {
    paper: "Linux 4.16, THP",
    live: "thp-always",
    text: "thp-always:huge_after_load=on",
};
/// Ingens compacts the lowest blocks, 100 MB of each zone (section 4.3).
const INGENS: SystemOf = SystemOf {
    paper: "Ingens",
    live: "ingens",
    text: "ingens:compact=chosen/ingens",
};
/// MEGA empties the blocks that it ranks first, 200 MB (section 3.4).
const MEGA: SystemOf = SystemOf {
    paper: "MEGA",
    live: "mega",
    text: "mega:compact=chosen/mega",
};
/// Ours: its policy on the same kernel without any compaction, to see what that is worth.
const MEGA_ALONE: SystemOf = super::machines::only("MEGA without compaction", "mega:compact=off");

const FOUR: [SystemOf; 4] = [BASE, THP, INGENS, MEGA];

const UNFRAGMENTED: &str = "nothing else in memory";

/// What the papers' kernels do in a fault besides Linux's own work.
const BOOKS: (&str, &str) = (
    "fault times of MEGA and Ingens above Linux's",
    "both keep books of mapped pages inside the fault handler of their own kernel (0.7 and 1.6 µs on average, Table 3); here they watch from \
     outside, as mega does on a stock kernel, and a fault costs what Linux's costs",
);
/// What books in the fault handler cost.
const fn books(metric: &'static str, a: &'static str, b: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a,
        b,
        why: "the order is that of the books that both kernels keep in their fault handlers",
    }
}

/// Means and lower percentiles with huge pages: of small faults, mostly.
const fn small_faults(metric: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a: THP.paper,
        b: "",
        why: "with huge pages 98 % of the paper's faults are small ones that come from Redis 4's allocator",
    }
}

/// The smallest or largest of all.
const fn extreme(metric: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a: "",
        b: "",
        why: "the one smallest or largest of a third of a million transactions, in one run of a minute",
    }
}

/// Ingens against the others where huge pages alone do not decide.
const fn other_kernel(metric: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a: "Ingens",
        b: "",
        why: "Ingens ran on Linux 4.3, the others on 4.16 with page table isolation: under Ingens MySQL is slower than with base pages alone, which no \
              huge page explains",
    }
}

/// Ingens' free blocks on the large server.
const GATHERED: &str =
    "here Ingens finds a free block for each region of the programs that ran before, and each promotion gathers scattered pages into a block \
     that is whole again when its program ends; MEGA promotes nothing that lives for so short a time. The paper's Ingens ended with 158 free \
     blocks, so it hardly found any: we guess that its memory had been used for longer than the paper tells";

const RATES: (&str, &str) = (
    "absolute rates of Redis",
    "sockets, system calls and the client are one constant per request; the paper gives neither client nor pipelining",
);
const GIVEN: (&str, &str) = (
    "the mean fault with base pages (0.9 µs) and the huge fault (118 µs)",
    "they are what the machine's costs were set from (cost preset 'mega'), so that they agree proves nothing",
);
const SMALL_FAULTS: (&str, &str) = (
    "the 286,000 small faults with huge pages",
    "Redis 4's jemalloc 4.0.3 maps and trims chunks of 2 MB one by one; the model is jemalloc 5, which maps ever larger pieces, so that nearly \
     all of it is huge",
);

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
        // jemalloc gives back within ten seconds.
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
        published_live("mega-bloat", &FOUR, &[("rss_bytes", "taken_bytes")]),
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
        vec![Case::new("churn", "8 GB allocated, gone through and freed, again and again", UNFRAGMENTED, scenario)],
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
            "10 GB as objects of 8 KB to 128 MB, allocated and freed, beside 420 MB that are spread out",
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
        "12 GB gone through, half of it freed in pieces of 1 MB, the rest used for two minutes; a minute more",
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
            "Redis, 40,000 sets of 2 MB by 50 clients, after 200 GB came and half of it went in pieces of 1 MB, and five times 100 GB came and went",
            "100 of 256 GB in use, of which the rest lies in pieces",
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

pub(super) const LIST: &[Experiment] = &[
    Experiment {
        name: "mega-table1",
        paper: "MEGA",
        title: "time to fill Redis with 2 million sets of 4 KB, and what the TLB does meanwhile",
        source: "MEGA (SYSTOR'19), Table 1",
        question: "How much faster is a store filled on huge pages?",
        differs: "A request costs 2 µs besides memory, with requests in a pipeline; walks for data only",
        cannot_know: &[
            RATES,
            (
                "instruction misses, and loads from memory in walks",
                "the model has no instruction fetches; of walks it counts entries read, from whichever cache",
            ),
        ],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: table1,
    },
    Experiment {
        name: "mega-table2",
        paper: "MEGA",
        title: "page faults while Redis is filled: how many, how long",
        source: "MEGA (SYSTOR'19), Table 2",
        question: "What do huge pages do to the latency of page faults?",
        differs: "Only faults on the heap; a fault of a kind always takes the same time",
        cannot_know: &[GIVEN, SMALL_FAULTS],
        misses: &[],
        words: &[],
        unknown: &[small_faults("fault_mean_ns"), small_faults("fault_p90_ns")],
        setup: table2,
    },
    Experiment {
        name: "mega-table3",
        paper: "MEGA",
        title: "page fault latency of Redis under four systems",
        source: "MEGA (SYSTOR'19), Table 3",
        question: "Do page faults stay short when huge pages are made outside of them?",
        differs: "MEGA and Ingens watch from outside of the fault handler",
        cannot_know: &[BOOKS, GIVEN, SMALL_FAULTS],
        misses: &[],
        words: &[],
        unknown: &[
            small_faults("fault_mean_ns"),
            small_faults("fault_p90_ns"),
            books("fault_mean_ns", "MEGA", BASE.paper),
            books("fault_mean_ns", "Ingens", BASE.paper),
            books("fault_mean_ns", "Ingens", "MEGA"),
            books("fault_p90_ns", "MEGA", BASE.paper),
            books("fault_p90_ns", "Ingens", BASE.paper),
            books("fault_p90_ns", "Ingens", "MEGA"),
            books("fault_p99_ns", "MEGA", BASE.paper),
            books("fault_p99_ns", "Ingens", BASE.paper),
            books("fault_p99_ns", "Ingens", "MEGA"),
            books("fault_p999_ns", "MEGA", BASE.paper),
        ],
        setup: table3,
    },
    Experiment {
        name: "mega-bloat",
        paper: "MEGA",
        title: "memory of Redis after most of a hash was removed",
        source: "MEGA (SYSTOR'19), section 2.4",
        question: "How much memory do huge pages hold on to?",
        differs: "Fields are read one by one, not in one reply; jemalloc 5; twenty seconds of rest before they are read",
        cannot_know: &[],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: bloat,
    },
    Experiment {
        name: "mega-table4",
        paper: "MEGA",
        title: "two programs that use a sixth of what they allocated",
        source: "MEGA (SYSTOR'19), Table 4",
        question: "Who makes huge pages of memory that is not used?",
        differs: "One simulated visit in the used chunks stands for 64",
        cannot_know: &[(
            "Ingens' 2,447 huge pages and 50 free blocks",
            "the paper blames extreme fragmentation from before, whose state it does not give, and a flag of Ingens' code that says 'huge' without \
             looking; here memory begins unfragmented and Ingens gets every huge page that it asks for",
        )],
        misses: &[Miss {
            case: "",
            metric: "free_blocks",
            a: "",
            b: "",
            why: "12 GB are in use whatever they are mapped with, and memory begins unfragmented: huge pages that Ingens makes take no block from anybody. The \
                  paper's memory was 'extremely fragmented' before, in a state that it does not give",
        }],
        words: &[],
        unknown: &[],
        setup: table4,
    },
    Experiment {
        name: "mega-table5",
        paper: "MEGA",
        title: "allocate 8 GB, iterate, free, 50 times",
        source: "MEGA (SYSTOR'19), Table 5",
        question: "What does a policy cost memory that lives for a short time?",
        differs: "Ten rounds, from which the time of fifty is computed; every page is written and read once",
        cannot_know: &[(
            "30 s for fifty rounds",
            "that is 0.6 s for 8 GB, while 2.1 million faults at the paper's own 0.9 µs take 1.9 s: 'iterate over it briefly' touched a part of it, and \
             the paper does not say which",
        )],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: table5,
    },
    Experiment {
        name: "mega-table6",
        paper: "MEGA",
        title: "6 GB visited in strides: MEGA's bad case",
        source: "MEGA (SYSTOR'19), Table 6",
        question: "What is lost where utilization never builds up?",
        differs: "Of 128 shifts in a row, which go to the same pages, two are simulated and the second counts 127 times",
        cannot_know: &[(
            "absolute times",
            "the processor is an 'i7 at 2.3 GHz': its model, turbo and prefetchers are not said",
        )],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: table6,
    },
    Experiment {
        name: "mega-fig1",
        paper: "MEGA",
        title: "contiguous memory after objects of 8 KB to 128 MB came and went",
        source: "MEGA (SYSTOR'19), Figure 1",
        question: "How does allocating and freeing wear out contiguous memory?",
        differs: "The second program spreads its 420 MB out and keeps them",
        cannot_know: &[(
            "what is left fragmented after everything was freed",
            "that is the kernel's own memory between the program's pages (page tables, slabs, page cache of a desktop), of which the paper says nothing; \
             in the model a freed page is free",
        )],
        misses: &[],
        words: &[],
        unknown: &[],
        setup: fig1,
    },
    Experiment {
        name: "mega-fig2",
        paper: "MEGA",
        title: "free 2 MB blocks while half of the memory is freed in 1 MB holes",
        source: "MEGA (SYSTOR'19), Figure 2",
        question: "Who brings contiguous memory back?",
        differs: "One piece gone through stands for sixteen; the kernel's own 1.5 GB are left out of the machine's memory",
        cannot_know: &[(
            "the curves' values",
            "the text gives the beginning (6,800) and 'nearly doubling'; the figure's points are not in it",
        )],
        misses: &[],
        words: &[Words {
            case: "holes",
            metric: "free_blocks_mean",
            more: "MEGA",
            less: "Ingens",
            place: "section 4.3: 'nearly doubling … throughout'",
        }],
        unknown: &[],
        setup: fig2,
    },
    Experiment {
        name: "mega-table7",
        paper: "MEGA",
        title: "work of compaction while memory is freed in 1 MB holes",
        source: "MEGA (SYSTOR'19), Table 7",
        question: "How many pages does compaction look at and move?",
        differs: "Both empty blocks that their planner names; pages to move to come from the free lists",
        cannot_know: &[(
            "free pages scanned",
            "a chosen block's pages go where an allocation would go, from the free lists, as mega.ko does it (alloc_contig_range): nothing is scanned for \
             them",
        )],
        misses: &[Miss {
            case: "",
            metric: "migrate_scanned_per_pass",
            a: "",
            b: "",
            why: "the paper's Ingens has Linux's compaction go through the zone and looks at 38 pages for each that it moves; here its planner names the lowest \
                  blocks, and only those are looked at. MEGA's budget is twice as large",
        }],
        words: &[],
        unknown: &[
            Miss {
                case: "",
                metric: "free_scanned_per_pass",
                a: "",
                b: "",
                why: "nothing is scanned for free pages where blocks are chosen",
            },
            Miss {
                case: "",
                metric: "failed_per_pass",
                a: "",
                b: "",
                why: "pages fail to move where something else holds them at that moment, about one in a pass; in the model nothing else does",
            },
        ],
        setup: table7,
    },
    Experiment {
        name: "mega-table8",
        paper: "MEGA",
        title: "a database under a read-only load",
        source: "MEGA (SYSTOR'19), Table 8",
        question: "Does a database gain throughput without longer tails?",
        differs: "A hash table of as many rows stands for MySQL's buffer pool; one operation reads one row, not a transaction",
        cannot_know: &[
            (
                "transactions per second and their latencies",
                "what MySQL computes for a transaction (14 statements, 1.3 to 1.7 ms of one thread) is not in the model; its table says µs where its own rates \
                 say ms",
            ),
            BOOKS,
        ],
        misses: &[],
        words: &[],
        unknown: &[
            extreme("read_min_ns"),
            extreme("read_max_ns"),
            other_kernel("read_*"),
            other_kernel("ops_per_s"),
        ],
        setup: table8,
    },
    Experiment {
        name: "mega-tables-9-10",
        paper: "MEGA",
        title: "Redis with values of 2 MB on the fragmented memory of a large server",
        source: "MEGA (SYSTOR'19), Tables 9 and 10",
        question: "How fast is a store on memory that has been used for long, and what is left of contiguous memory?",
        differs: "Keys are never drawn twice (107 of 40,000 would be); the network is a constant per request",
        cannot_know: &[
            RATES,
            BOOKS,
            (
                "where programs ran",
                "the processor is made for two sockets; two nodes are taken, and Redis on the other one, which is as likely as the same",
            ),
        ],
        misses: &[
            Miss {
                case: "",
                metric: "free_blocks",
                a: "",
                b: "",
                why: GATHERED,
            },
            Miss {
                case: "",
                metric: "free_4m_runs",
                a: "",
                b: "",
                why: GATHERED,
            },
        ],
        words: &[],
        unknown: &[],
        setup: tables9_10,
    },
];
