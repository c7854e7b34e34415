//! How much of the host's memory a simulated machine takes: 256 GB in 1 GB, 1 TB in 4 GB, that is 4 MB for each GB, with every page mapped by a base page.
//!
//! ```text
//! cargo test --release -p mega-sim --test footprint -- --ignored --nocapture
//! ```

use mega_core::fault::by_name;
use mega_sim::machine::{Config, Machine};

const GB: u64 = 1 << 30;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Maps a machine's memory by base pages, all but what the kernel keeps; returns how much the host's memory grew.
fn filled(bytes: u64) -> u64 {
    let before = resident();
    let config = Config {
        tlb: mega_sim::tlb::find("broadwell-ep").copied(),
        ..Config::of_bytes(bytes)
    };
    let mut machine = Machine::new(&config, by_name("base").unwrap());
    let id = machine.spawn("all").unwrap();
    let mapped = bytes - bytes / 64 - (bytes / 16).min(GB);
    let area = machine.mmap(id, mapped, true).unwrap();
    for page in 0..mapped / 4096 {
        machine.access(id, area + page * 4096, true).unwrap();
    }
    assert_eq!(machine.space(id).unwrap().counts.resident_pages, mapped / 4096);
    let grown = resident() - before;
    println!(
        "{} GB, {} GB of it mapped by base pages: {} MB of the host's",
        bytes / GB,
        mapped / GB,
        grown >> 20
    );
    grown
}

#[test]
fn a_gb_takes_less_than_4_mb() {
    assert!(filled(8 * GB) < (8 * 4) << 20);
}

#[test]
#[ignore = "takes about 20 seconds and 1 GB"]
fn a_machine_of_256_gb_takes_less_than_1_gb() {
    assert!(filled(256 * GB) < 1 << 30);
}

#[test]
#[ignore = "takes over a minute and 4 GB"]
fn a_machine_of_1_tb_takes_less_than_4_gb() {
    assert!(filled(1024 * GB) < 4 << 30);
}
