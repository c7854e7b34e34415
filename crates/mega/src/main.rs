//! The `mega` command.
fn main() {}
