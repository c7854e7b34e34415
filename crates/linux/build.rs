//! Compiles the eBPF scanner with clang into `$OUT_DIR/scan.bpf.o`.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    for file in ["scan.bpf.c", "intf.h", "types.h"] {
        println!("cargo:rerun-if-changed=src/bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo")).join("scan.bpf.o");
    // The page-table format in the program is x86-64's; elsewhere an empty object makes the scanner refuse.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        fs::write(&object, []).expect("writing an empty object");
        return;
    }
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall"]);
    // libbpf-sys exports the folder of the libbpf headers that it was built from.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    command.args(["-c", "src/bpf/scan.bpf.c", "-o"]).arg(&object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile src/bpf/scan.bpf.c: {status}"),
        Err(error) => panic!("{clang} is needed to build the eBPF scanner (set CLANG to its path): {error}"),
    }
}
