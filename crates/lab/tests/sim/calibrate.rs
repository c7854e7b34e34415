//! `mega sim calibrate`: what it measures is kept, shown and used.

use mega_sim::cost::Costs;

use crate::{result, sim};

#[test]
fn costs_are_measured_kept_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.json");
    let path = file.to_str().unwrap();
    let ended = sim(&["calibrate", "-q", "-o", path]);
    if ended.code() != 0 {
        // Memory or pinning may not be allowed here.
        let stderr = ended.stderr();
        assert!(stderr.starts_with("mega: ") && stderr.lines().count() == 1, "{stderr}");
        eprintln!("skipped: {stderr}");
        return;
    }
    let text = ended.stdout();
    assert!(text.contains("fault_entry") && text.contains("default"), "{text}");
    let costs = Costs::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(costs.fault_entry_ns > 50 && costs.kernel.contains('.'), "{costs:?}");
    let shown = costs.fault_entry_ns.to_string();
    let row = text
        .lines()
        .find(|line| line.trim_start().starts_with("fault_entry "))
        .unwrap();
    assert!(row.contains(&shown), "{row}");

    let output = folder.path().join("out");
    let args = [
        "run",
        "--workload",
        "touch",
        "--set",
        "mib=16",
        "--memory",
        "128M",
        "--system",
        "base",
        "-q",
        "--costs",
        path,
        "-o",
        output.to_str().unwrap(),
    ];
    sim(&args).done();
    let record = result(&output).1;
    assert!(
        record.machine.system.contains(&costs.machine),
        "{}",
        record.machine.system
    );
    let mean = record.values(0, 0, "fault_mean_ns")[0].1 as u64;
    assert!(mean >= costs.fault_entry_ns, "{mean}");

    std::fs::write(&file, "{\"machine\": 3}").unwrap();
    sim(&args).one_line(2, &["costs.json", "line 1 column"]);
}

#[test]
fn a_file_that_cannot_be_written_is_said() {
    sim(&["calibrate", "-q", "-o", "/no/such/folder/costs.json"]).one_line(1, &["/no/such/folder/costs.json"]);
}
