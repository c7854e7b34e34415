//! `mega-lab bench scale` at a hundredth of its size. Needs what managing needs; says so and skips otherwise.

use std::process::Command;

#[test]
fn each_subject_is_seen_and_has_its_cost() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega-lab"));
    let output = command
        .args(["bench", "scale", "--scale", "0.01", "--json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("cannot look at page tables") {
        return eprintln!("SKIPPED: {stderr}");
    }
    assert!(output.status.success(), "{stderr}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let costs = result["costs"].as_array().unwrap();
    assert_eq!(costs.len(), 13);
    for cost in costs {
        let subject = &cost["subject"];
        let processes = subject["processes"].as_u64().or(subject["processes_by_proc"].as_u64());
        // How many of the short-lived ones a look meets is luck.
        if subject["children_a_minute"].is_null() {
            assert_eq!(cost["seen"].as_u64(), Some(processes.unwrap_or(1)), "{cost}");
        }
        for time in ["first_ns", "look_ns", "look_cpu_ns", "stop_ns"] {
            let ns = cost[time].as_u64().unwrap();
            assert!(ns < 10_000_000_000, "{time}: {cost}");
        }
        assert!(cost["look_ns"].as_u64() > Some(0), "{cost}");
    }
    let loops = result["loops"].as_array().unwrap();
    assert_eq!(loops.len(), 2);
    for whole in loops {
        assert_eq!(whole["processes"], 50);
        assert!(whole["promoted"].as_u64() > Some(0), "{whole}");
        assert!(whole["scans"].as_u64() > Some(10), "{whole}");
    }
}
