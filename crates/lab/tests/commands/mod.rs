//! The two commands, for tests and benchmarks.
#![allow(dead_code)] // each uses a part of it

use std::path::Path;

/// The laboratory's command.
pub const LAB: &str = env!("CARGO_BIN_EXE_mega-lab");
/// The command under test, which is built beside it.
pub const MEGA: &str = beside(LAB);

/// The path of `mega` from that of `mega-lab`.
const fn beside(lab: &str) -> &str {
    let (mega, _) = lab.as_bytes().split_at(lab.len() - "-lab".len());
    match std::str::from_utf8(mega) {
        Ok(mega) => mega,
        Err(_) => panic!("the path is UTF-8"),
    }
}

/// Fails where `mega` is missing: it is of another package, which cargo does not build for these tests.
pub fn built() {
    assert!(
        Path::new(MEGA).is_file(),
        "{MEGA} is missing: build the workspace first: cargo build --release"
    );
}
