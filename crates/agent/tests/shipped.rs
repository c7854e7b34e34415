//! The library as it is shipped: small, and without need of any other.

use std::path::Path;
use std::process::Command;

fn shipped() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::current_exe().expect("the test's own path");
    let target = target.ancestors().nth(3).expect("target/PROFILE/deps").to_path_buf();
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--locked",
            "--profile",
            "agent",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(folder)
        .status()
        .expect("cargo");
    assert!(status.success());
    std::fs::read(target.join("agent/libmega_agent.so")).expect("the library")
}

#[test]
fn it_is_small_and_cannot_panic_into_std() {
    let library = shipped();
    assert!(library.len() <= 72 << 10, "{} bytes", library.len());
    let has = |name: &[u8]| library.windows(name.len()).any(|window| window == name);
    assert!(has(b"pthread_create"));
    for name in [
        "rust_begin_unwind",
        "_Unwind_RaiseException",
        "malloc",
        "libc.so.6",
        "libgcc_s",
    ] {
        assert!(!has(name.as_bytes()), "it mentions {name}");
    }
}
