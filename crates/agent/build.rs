//! The library stays loaded until the process ends, even after `dlclose`: its helper runs in it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
