//! A member of a family: an experiment on one program, set up as all others of its family are.

/// A program of the catalogue under the name `family-name`, at a share of its own size. `main` is what it is judged by, then what else is
/// shown first.
macro_rules! member {
    ($family:literal, $name:literal, $program:literal, $share:expr, $bytes:expr, $variants:expr, $title:literal, [$($main:literal),+]) => {
        crate::experiment::Experiment {
            name: concat!($family, "-", $name),
            title: $title,
            question: "What do huge pages bring and cost this program, and is auto the better of both?",
            source: None,
            differs: None,
            elsewhere: None,
            full_bytes: $bytes,
            setup: |scale| crate::experiment::member::setup($name, $program, scale * $share, $variants, &[$($main),+]),
        }
    };
}
pub(super) use member;

/// Memory of each, shown first.
const MEMORY: [&str; 4] = [
    "mean_taken_bytes",
    "peak_taken_bytes",
    "mean_rss_bytes",
    "peak_huge_bytes",
];

pub(super) fn setup(name: &str, program: &str, scale: f64, variants: &[&str], main: &[&str]) -> super::Setup {
    let case = super::case(
        name,
        super::program(program, scale),
        crate::prepare::condition::Condition::Unfragmented,
    );
    super::Setup {
        plan: super::plan(vec![case], variants, &[main, &MEMORY].concat()),
        published: Vec::new(),
        size: None,
    }
}
