//! `mega bench soak` for half a minute; two hours of it are in `results/soak.json`.

#[path = "commands/mod.rs"]
mod commands;

use std::process::Command;

use mega_lab::soak::Soak;

use commands::LAB;

#[test]
fn a_short_soak_ends_with_a_record_right_data_and_the_machine_as_it_was() {
    commands::built();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: managing needs root");
        return;
    }
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-server is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(LAB)
        .args(["bench", "soak", "--scale", "0.005", "--json", "--quiet", "--output"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(folder.path().join("soak.json")).unwrap();
    assert_eq!(text.as_bytes(), output.stdout);
    let soak: Soak = serde_json::from_str(&text).unwrap();
    assert!(soak.complaints().is_empty());
    let sum = |of: fn(&mega_lab::soak::Sample) -> u64| soak.samples.iter().map(of).sum::<u64>();
    assert!(sum(|s| s.requests) > 10_000, "{}", sum(|s| s.requests));
    assert!(sum(|s| s.storms + s.killed) >= 1 && sum(|s| s.scans) > 5, "{text}");
    assert!(soak.samples.iter().any(|s| s.processes >= 2), "{text}");
    assert_eq!(soak.off_at_start_ns.len(), 3);
}

#[test]
fn what_grew_what_changed_and_what_was_wrong_is_complained_of() {
    let mut soak: Soak = serde_json::from_str(include_str!("../../../results/soak.json")).unwrap();
    assert!(soak.complaints().is_empty(), "{:?}", soak.complaints());
    let last = soak.samples.len() - soak.samples.len() / 6;
    for sample in &mut soak.samples[last..] {
        sample.daemon_bytes += 8 << 20;
        sample.daemon_threads += 2;
    }
    soak.changed_settings = vec![("enabled".into(), "always".into(), "never".into())];
    soak.wrong = Some("key 1".into());
    let all = soak.complaints().join("\n");
    for what in [
        "key 1",
        "enabled was 'always' and is 'never'",
        "resident bytes of the daemon",
        "threads of the daemon",
    ] {
        assert!(all.contains(what), "{all}");
    }
}

#[test]
fn the_documents_figures_are_the_records() {
    let soak: Soak = serde_json::from_str(include_str!("../../../results/soak.json")).unwrap();
    let document = include_str!("../../../docs/security.md");
    for [name, start, end] in soak.rows() {
        let row = format!("| {name} | {start} | {end} |");
        assert!(document.contains(&row), "docs/security.md lacks: {row}");
    }
    assert!(
        document.contains(&soak.done()),
        "docs/security.md lacks: {}",
        soak.done()
    );
}
