//! A made-up record for the tests of the reports, with known ratios.

use std::collections::BTreeMap;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::result::{
    About, Better, Case, Distribution, Machine, Metric, Noise, Outcome, Picture, PictureCell, Published, Record, Run,
    Series, Settings, Unit, VariantInfo, SCHEMA,
};

/// What to make up.
pub struct Options {
    pub rounds: usize,
    pub variants: usize,
    /// One run failed, one is doubtful, one variant is skipped, one value is missing.
    pub troubled: bool,
    /// Every variant does what the first does.
    pub alike: bool,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 3,
            variants: 4,
            troubled: false,
            alike: false,
            seed: 7,
        }
    }
}

/// Name, factor of operations/s, factor of memory, factor of the latency's tail.
const VARIANTS: [(&str, f64, f64, f64); 9] = [
    ("base", 1.0, 1.0, 1.0),
    ("linux-thp", 1.3, 1.8, 30.0),
    ("mega:uprom=30%", 1.25, 1.1, 3.0),
    ("trim", 1.28, 1.0, 8.0),
    ("ingens", 1.1, 1.2, 20.0),
    (
        "ethp:a-name-that-nobody-wanted-to-read-in-full,min=5%,max=100%",
        1.05,
        1.4,
        12.0,
    ),
    ("hawkeye", 1.15, 1.3, 5.0),
    ("mthp-64k", 1.2, 1.02, 1.5),
    ("freebsd<script>alert(1)</script>&\"'", 0.9, 1.25, 2.0),
];

fn metric(name: &str, label: &str, unit: Unit, better: Better, main: bool) -> Metric {
    Metric {
        name: name.into(),
        label: label.into(),
        unit,
        better,
        main,
    }
}

pub fn record(options: &Options) -> Record {
    let mut random = Pcg64Mcg::seed_from_u64(options.seed);
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for case in 0..2 {
            let machine = 1.0 + 0.03 * noise(&mut random);
            for variant in 0..options.variants {
                let does = if options.alike { 0 } else { variant };
                let run = run(&mut random, runs.len(), case, does, round, machine);
                runs.push(Run { variant, ..run });
            }
        }
    }
    if options.troubled {
        trouble(&mut runs);
    }
    Record {
        schema: SCHEMA,
        kind: "bench".into(),
        experiment: about(),
        machine: machine(),
        settings: Settings {
            version: "0.1.0".into(),
            commit: Some("ffb537b+".into()),
            began_unix_s: 1_795_260_498,
            seconds: 812.4,
            rounds: options.rounds,
            seed: options.seed,
            program_cpu: Some(0),
            command: format!(
                "mega bench redis-bloat --rounds {} --seed {}",
                options.rounds, options.seed
            ),
            exclusion_rule: None,
        },
        metrics: vec![
            metric("ops_per_s", "operations/s", Unit::PerSecond, Better::Higher, true),
            metric("rss_bytes", "resident memory", Unit::Bytes, Better::Lower, true),
            metric("fault_p99_ns", "page fault p99", Unit::Ns, Better::Lower, true),
            metric("huge_pages", "huge pages", Unit::Count, Better::Neither, true),
            metric("fill_ns", "time to fill", Unit::Ns, Better::Lower, false),
            metric("steal_share", "huge share", Unit::Share, Better::Neither, false),
        ],
        cases: vec![
            case("redis-del-50", "unfragmented"),
            case("redis-del-50-fragmented", "fragmented 90%"),
        ],
        variants: VARIANTS[..options.variants].iter().map(variant).collect(),
        runs,
        published: published(),
        ended_early: None,
    }
}

fn noise(random: &mut Pcg64Mcg) -> f64 {
    (0..4).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 2.0
}

fn about() -> About {
    About {
        name: "redis-bloat".into(),
        title: "What huge pages cost Redis after half of its keys are gone".into(),
        question: "Does managed promotion keep the speed of huge pages without their memory?".into(),
        source: Some("MEGA (SYSTOR'19), Table 3".into()),
        scale: Some("2 GB here for the paper's 16 GB: a factor of 8".into()),
        differs: Some("The paper ran Linux 4.16 on 20 cores; this is a virtual machine with two.".into()),
    }
}

fn machine() -> Machine {
    Machine {
        kernel: "6.12.0-test".into(),
        processor: "A Processor @ 2.60GHz".into(),
        processors: 2,
        memory_bytes: 25_000_000_000,
        virtual_machine: true,
        thp: BTreeMap::from([
            ("enabled".into(), "madvise".into()),
            ("defrag".into(), "madvise".into()),
        ]),
        system: "Debian GNU/Linux 13 (trixie)".into(),
    }
}

fn case(name: &str, condition: &str) -> Case {
    Case {
        name: name.into(),
        program: "redis-server, 500k keys of 4 KB, half deleted at random".into(),
        condition: condition.into(),
    }
}

fn variant((name, ..): &(&str, f64, f64, f64)) -> VariantInfo {
    VariantInfo {
        name: (*name).into(),
        about: "what it does, in words".into(),
        knobs: BTreeMap::from([("transparent_hugepage/enabled".into(), "madvise".into())]),
    }
}

fn run(random: &mut Pcg64Mcg, index: usize, case: usize, variant: usize, round: usize, machine: f64) -> Run {
    let (_, speed, memory, tail) = VARIANTS[variant];
    let fragmented = 1.0 - 0.2 * case as f64;
    let mut wobble = || 1.0 + 0.01 * noise(random);
    let ops = 1e6 * machine * speed * fragmented * wobble();
    let rss = 3.2e9 * memory * wobble();
    let p99 = 4_000.0 * tail * wobble();
    let huge = if variant == 0 {
        0.0
    } else {
        (900.0 * memory * wobble()).round()
    };
    let seconds: Vec<f64> = (0..60).map(|i| f64::from(i) * 0.5).collect();
    let column = |top: f64, rise_s: f64| -> Vec<Option<f64>> {
        let value = |s: &f64| top * (1.0 - (-s / rise_s).exp()) * machine;
        seconds.iter().map(|s| (*s != 5.0).then(|| value(s))).collect()
    };
    let columns = BTreeMap::from([
        ("rss_bytes".to_string(), column(rss, 3.0)),
        ("ops_per_s".to_string(), column(ops, 1.0 + variant as f64)),
    ]);
    let quantile = |q: f64| {
        let nines = -(1.0 - q).max(1e-5).log10();
        (
            q,
            900.0 * (1.0 + 0.2 * nines) * (1.0 + (tail - 1.0) * nines / 5.0) * (1.0 + 0.1 * nines * nines) * machine,
        )
    };
    let quantiles = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(quantile).to_vec();
    Run {
        case,
        variant,
        round,
        began_s: index as f64 * 31.0,
        seconds: 30.0,
        outcome: Outcome::Done,
        values: BTreeMap::from([
            ("ops_per_s".into(), ops),
            ("rss_bytes".into(), rss),
            ("fault_p99_ns".into(), p99),
            ("huge_pages".into(), huge),
            ("fill_ns".into(), 4.2e9 / speed),
        ]),
        phases: vec![(0.0, "fill".into()), (12.0, "serve".into())],
        series: Series { seconds, columns },
        distributions: BTreeMap::from([(
            "fault".into(),
            Distribution {
                count: 500_000,
                mean_ns: 1_100.0,
                quantiles,
            },
        )]),
        pictures: ["before", "prepared"].map(|moment| picture(moment, variant)).into(),
        noise: Noise {
            steal_share: Some(0.002),
            others_share: Some(0.04),
            probe_ns: Some((1.0e6, 1.01e6)),
            mhz: None,
            doubtful: vec![],
        },
    }
}

/// Half of memory in use, in part huge; the unmovable part at the bottom.
fn picture(moment: &str, variant: usize) -> Picture {
    let cell = |i: u16| PictureCell {
        unmovable: if i < 8 { 400 } else { i % 3 * 4 },
        movable: if i < 8 { 30 } else { 120 + i % 7 * 30 },
        huge: if i > 30 { variant as u16 * 20 } else { 0 },
    };
    Picture {
        moment: moment.to_string(),
        blocks_per_cell: 64,
        first_block: 0,
        cells: (0..96).map(cell).collect(),
    }
}

fn trouble(runs: &mut [Run]) {
    let mut of = |variant: usize, round: usize, change: &dyn Fn(&mut Run)| {
        let found = runs
            .iter_mut()
            .find(|r| r.case == 0 && r.variant == variant && r.round == round);
        found.map(change).expect("a run of the first case");
    };
    let doubt = "the hypervisor stole 12 % of the processor";
    of(1, 0, &|run| run.noise.doubtful = vec![doubt.into()]);
    of(1, 1, &|run| {
        run.outcome = Outcome::Failed("the store found a <wrong> word at 0x7f00".into());
        run.values.clear();
    });
    of(2, 0, &|run| {
        run.values.remove("rss_bytes");
    });
    for run in runs.iter_mut().filter(|r| r.variant == 3) {
        run.outcome = Outcome::Skipped("this kernel has no shrinker".into());
        run.values.clear();
        run.series = Series::default();
        run.distributions.clear();
    }
}

fn published() -> Vec<Published> {
    let figure = |case: Option<&str>, system: &str, variant: Option<&str>, metric: &str, value| Published {
        case: case.map(Into::into),
        system: system.into(),
        variant: variant.map(Into::into),
        metric: metric.into(),
        value,
        place: "Table 3".into(),
    };
    vec![
        figure(None, "Linux without THP", Some("base"), "rss_bytes", 7.6e9),
        figure(None, "Linux THP", Some("linux-thp"), "rss_bytes", 11.1e9),
        figure(None, "Ingens", None, "rss_bytes", 8.2e9),
        figure(
            Some("redis-del-50"),
            "Linux without THP",
            Some("base"),
            "fault_p99_ns",
            2_800.0,
        ),
        figure(
            Some("redis-del-50"),
            "Linux THP",
            Some("linux-thp"),
            "fault_p99_ns",
            118_000.0,
        ),
        figure(
            Some("redis-del-50"),
            "MEGA",
            Some("mega:uprom=30%"),
            "fault_p99_ns",
            6_100.0,
        ),
    ]
}
