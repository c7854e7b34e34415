//! Compiles the eBPF programs with clang: `src/bpf/NAME.bpf.c` into `$OUT_DIR/NAME.bpf.o`.
//!
//! Without clang the objects are empty and the library falls back to /proc, as without CAP_BPF. `MEGA_REQUIRE_BPF=1`
//! makes that an error: for packages, which must not lose eBPF silently.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    for file in [
        "scan.bpf.c",
        "faults.bpf.c",
        "tasks.bpf.c",
        "waits.bpf.c",
        "entries.h",
        "passes.h",
        "intf.h",
        "types.h",
    ] {
        println!("cargo:rerun-if-changed=src/bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo"));
    let objects = ["scan", "faults", "tasks", "waits"].map(|name| (name, out.join(format!("{name}.bpf.o"))));
    let absent = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => match objects.iter().try_for_each(|(name, object)| compile(name, object)) {
            Ok(()) => return,
            Err(clang) => {
                format!("{clang} not found: built without eBPF. Install clang, then `cargo clean -p mega-linux`")
            }
        },
        _ => "built without eBPF: the programs read x86-64 page tables and registers".to_owned(),
    };
    // Only here: a build with eBPF is the same with and without it.
    println!("cargo:rerun-if-env-changed=MEGA_REQUIRE_BPF");
    if env::var("MEGA_REQUIRE_BPF").is_ok_and(|value| value == "1") {
        panic!("MEGA_REQUIRE_BPF=1, but {absent}");
    }
    println!("cargo:warning={absent}");
    for (_, object) in &objects {
        fs::write(object, []).expect("writing an empty object");
    }
}

/// `Err` names the clang that is not there.
fn compile(name: &str, object: &Path) -> Result<(), String> {
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
        Ok(status) if status.success() => Ok(()),
        Ok(status) => panic!("{clang} could not compile {source}: {status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(clang),
        Err(error) => panic!("cannot run {clang} to compile {source}: {error}"),
    }
}
