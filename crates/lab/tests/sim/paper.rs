//! The papers' experiments from the command line.

use crate::{result, sim};

#[test]
fn an_experiment_is_run_kept_and_counted_again() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let ran = sim(&["mega-table4", "--scale", "0.01", "-o", output, "--threads", "1"]).done();
    let said = ran.stdout();
    for words in [
        "### mega-table4",
        "| figure | system | published | simulated |",
        "| paper | better or worse |",
        "| MEGA and LRBHPS |",
    ] {
        assert!(said.contains(words), "no '{words}' in {said}");
    }
    assert!(ran.stderr().contains("[1/5]") && ran.stderr().contains("report.html"));
    let (kept, record) = result(folder.path());
    assert_eq!((record.runs.len(), record.variants.len()), (5, 5));
    assert!(kept.join("report.html").exists());
    let file = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    assert!(file(kept.join("table.md")).starts_with("### mega-table4"));
    assert!(file(folder.path().join("orderings.md")).contains("| MEGA and LRBHPS |"));

    assert!(
        sim(&["mega-table4", "--kept", output]).done().stdout() == said,
        "counted again it is the same"
    );
    sim(&["mega-table5", "--kept", output]).one_line(1, &["no result of mega-table5"]);
    sim(&["mega-table4", "--kept", "/no/such"]).one_line(1, &["/no/such"]);
    sim(&["mega-table99"]).one_line(2, &["mega-table99", "lrbhps-table2"]);
}
