//! `mega bench` with mosaics of page sizes: what cannot be had is said and leaves the others alone; what is set aside is put back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mega_lab::report::folder;
use mega_lab::result::{Outcome, Record};

use crate::support::MEGA;
use crate::tool::{ready, settings, Program};

const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder with the library that was built with this test.
fn library() -> Option<PathBuf> {
    let folder = Path::new(MEGA).parent()?;
    let folders = [folder.join("deps"), folder.to_owned()];
    let found = folders.into_iter().find(|f| f.join("libmemomania.so").is_file());
    if found.is_none() {
        eprintln!("SKIPPED: libmemomania.so is not built; test the whole workspace");
    }
    found
}

fn count() -> String {
    fs::read_to_string(COUNT).unwrap_or_default()
}

/// One round of the network simplex, or of a command, under these variants.
fn bench(libraries: &Path, args: &[&str]) -> Record {
    let output = tempfile::tempdir().unwrap();
    let mut command = Command::new(MEGA);
    command
        .args(["bench", "-o"])
        .arg(output.path())
        .args(["--rounds", "1"])
        .args(args);
    command.env("MEGA_LIB_DIR", libraries).stdin(Stdio::null());
    let ended = Program::start(&mut command).wait(PATIENCE);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let result = fs::read_dir(output.path()).unwrap().next().unwrap().unwrap().path();
    folder::read(&result).unwrap_or_else(|e| panic!("{e}"))
}

fn why(record: &Record, run: usize) -> &str {
    match &record.runs[run].outcome {
        Outcome::Done => "done",
        Outcome::Failed(why) | Outcome::Skipped(why) => why,
    }
}

#[test]
fn a_program_runs_on_the_pages_of_its_variant_and_they_are_put_back() {
    let Some(libraries) = library() else { return };
    let Some(_alone) = ready(2048) else { return };
    let before = (settings(), count());
    let variants = "base,mosaic:2M,mosaic:2M:thp,mosaic:2M:share=50%,mosaic:1G:reserve-1G=3000G";
    let record = bench(
        &libraries,
        &["memomania-fig1", "--scale", "0.01", "--variants", variants],
    );
    assert_eq!((settings(), count()), before);
    let simplex = &record.runs[..5];
    let value = |run: usize, name: &str| simplex[run].values.get(name).copied().unwrap_or(0.0);
    for (run, _) in simplex.iter().enumerate().take(4) {
        // Where others have taken all that there was, this is no failure of ours.
        if matches!(&simplex[run].outcome, Outcome::Skipped(_)) {
            eprintln!("SKIPPED: {}", why(&record, run));
            continue;
        }
        assert_eq!(why(&record, run), "done");
        assert!(value(run, "speedup") > 0.0 && value(run, "rss_bytes") > 2e7);
        let (huge, hugetlb) = (value(run, "huge_bytes"), value(run, "hugetlb_bytes"));
        match run {
            0 => assert_eq!((huge, hugetlb), (0.0, 0.0)),
            1 => assert!(hugetlb >= 2e7 && huge >= hugetlb, "{hugetlb} of {huge}"),
            2 => assert!(hugetlb == 0.0 && huge > 1e7, "{huge}"),
            _ => assert!(hugetlb > 4e6 && hugetlb < 0.8 * value(run, "rss_bytes"), "{hugetlb}"),
        }
        assert_eq!(value(run, "mosaic_short"), 0.0);
    }
    assert!(matches!(&simplex[4].outcome, Outcome::Skipped(_)));
    assert!(why(&record, 4).contains("of memory"), "{}", why(&record, 4));
}

#[test]
fn without_the_library_a_mosaic_is_skipped_and_the_others_run() {
    let Some(_alone) = ready(1024) else { return };
    let nowhere = tempfile::tempdir().unwrap();
    let record = bench(
        nowhere.path(),
        &["run", "--variants", "base,mosaic:4K", "--", "sleep", "0.1"],
    );
    assert_eq!(why(&record, 0), "done");
    assert!(matches!(&record.runs[1].outcome, Outcome::Skipped(_)));
    assert!(
        why(&record, 1).contains("libmemomania.so is not in"),
        "{}",
        why(&record, 1)
    );
}
