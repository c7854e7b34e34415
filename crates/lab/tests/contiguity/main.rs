//! `mega frag`, `mega hog` and `mega compact` on the live machine, with at most two gigabytes. One test at a time, because each measures the machine's
//! memory; those that lack a privilege or memory say so and skip.

#[path = "../live/support.rs"]
mod support;
#[allow(dead_code)] // shared with the test program `hazards`, which uses all of it
#[path = "../hazards/tool.rs"]
mod tool;

mod compact;
mod frag;
mod hog;
mod unprivileged;
