//! MEGA's experiments: the question of each, and which comparisons differ and why.

use super::{bloat, fig1, fig2, table1, table2, table3, table4, table5, table6, table7, table8, tables9_10, BASE, THP};
use crate::simulated::experiment::{Experiment, Miss, Words};

/// What the papers' kernels do in a fault beyond Linux.
const BOOKS: (&str, &str) = (
    "fault times of MEGA and Ingens above Linux's",
    "both keep books of mapped pages inside the fault handler of their own kernel (0.7 and 1.6 µs on average, Table 3); here they watch from \
     outside, as mega does on a stock kernel, and a fault costs what Linux's costs",
);
/// The cost of bookkeeping in the fault handler.
const fn books(metric: &'static str, a: &'static str, b: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a,
        b,
        why: "the order depends on the bookkeeping of both kernels in their fault handlers",
    }
}

/// Means and lower percentiles with huge pages: of small faults, mostly.
const fn small_faults(metric: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a: THP.paper,
        b: "",
        why: "with huge pages 98 % of the paper's faults are small ones, from Redis 4's allocator",
    }
}

/// The smallest or largest of all.
const fn extreme(metric: &'static str) -> Miss {
    Miss {
        case: "",
        metric,
        a: "",
        b: "",
        why: "a single minimum or maximum of a third of a million transactions, in one run of a minute",
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
    "they are what the machine's costs were calibrated from (cost preset 'mega'), so their agreement proves nothing",
);
const SMALL_FAULTS: (&str, &str) = (
    "the 286,000 small faults with huge pages",
    "Redis 4's jemalloc 4.0.3 maps and trims chunks of 2 MB one by one; the model is jemalloc 5, which maps ever larger pieces, so that nearly \
     all of it is huge",
);

pub const LIST: &[Experiment] = &[
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
        question: "Do page faults stay short when huge pages are made asynchronously?",
        differs: "MEGA and Ingens do not run in the fault handler",
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
        question: "How much freed memory do huge pages retain?",
        differs: "Fields are read one by one, not in one reply; jemalloc 5; twenty seconds idle before they are read",
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
        question: "Which systems promote memory that is not used?",
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
        question: "What does a policy cost short-lived memory?",
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
        title: "contiguous memory after allocating and freeing objects of 8 KB to 128 MB",
        source: "MEGA (SYSTOR'19), Figure 1",
        question: "How do allocation and freeing fragment memory?",
        differs: "The second program spreads its 420 MB out and keeps them",
        cannot_know: &[(
            "what stays fragmented after everything was freed",
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
        question: "Which planners restore contiguity?",
        differs: "One traversed piece stands for sixteen; the kernel's own 1.5 GB are not modelled",
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
        question: "How many pages does compaction scan and migrate?",
        differs: "Both evacuate blocks that their planner selects; target pages come from the free lists",
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
                why: "where blocks are selected, no free pages are scanned for",
            },
            Miss {
                case: "",
                metric: "failed_per_pass",
                a: "",
                b: "",
                why: "pages fail to migrate when something else holds them, about one per pass; in the model nothing does",
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
        question: "How fast is a store on long-used memory, and how much contiguity remains?",
        differs: "Keys are never drawn twice (107 of 40,000 would be); the network is a constant per request",
        cannot_know: &[
            RATES,
            BOOKS,
            (
                "where programs ran",
                "the processor is a two-socket part; two nodes are assumed, with Redis on the other one, as likely as the same",
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
