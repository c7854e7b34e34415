//! `mega frag` and `mega hog` on the live machine, with at most a gigabyte. One test at a time, because each measures the machine's
//! memory; those that lack a privilege or memory say so and skip.

#[path = "../live/support.rs"]
mod support;
#[allow(dead_code)] // shared with the test program `hazards`, which uses all of it
#[path = "../hazards/tool.rs"]
mod tool;

mod frag;
mod hog;
mod unprivileged;
