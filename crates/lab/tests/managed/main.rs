//! What `mega` does for whole programs: a sparse one beside a dense one, a real Redis, every fault size, every view. One test at a
//! time, because each measures the machine's memory; those that lack a privilege, a program or memory say so and skip.

#[path = "../live/support.rs"]
mod support;

mod advise;
mod child;
mod edges;
mod kept;
mod maps;
mod record;
mod redis;
mod sizes;
mod small_faults;
mod trim;
mod views;
