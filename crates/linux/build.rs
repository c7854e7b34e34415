//! Compiles the eBPF programs with clang: `src/bpf/NAME.bpf.c` into `$OUT_DIR/NAME.bpf.o`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    for file in ["scan.bpf.c", "faults.bpf.c", "intf.h", "types.h"] {
        println!("cargo:rerun-if-changed=src/bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo"));
    for name in ["scan", "faults"] {
        compile(name, &out.join(format!("{name}.bpf.o")));
    }
}

fn compile(name: &str, object: &Path) {
    // Page-table format and registers in the programs are x86-64's; elsewhere an empty object makes the library refuse.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        fs::write(object, []).expect("writing an empty object");
        return;
    }
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall"]);
    // libbpf-sys exports the folder of the libbpf headers that it was built from.
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    let source = format!("src/bpf/{name}.bpf.c");
    command.args(["-c", &source, "-o"]).arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source}: {status}"),
        Err(error) => panic!("{clang} is needed to build the eBPF programs (set CLANG to its path): {error}"),
    }
}
