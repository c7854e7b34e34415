//! What the commands `mega` and `mega-lab` share. What only one of them uses stays with it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`args`] | parsers of option values |
//! | [`exit`] | exit statuses, and the one line that goes with a failure |
//! | [`signals`] | stopping on signals |
//! | [`settings`] | the machine's settings with undo; whether managing can work here |
//! | [`hand_over`] | commands that are programs of their own, found beside this one or in PATH |
//! | [`journal`] | a journal as a file |
//! | [`recording`] | traces as files |
//! | [`contiguity`] | how contiguous free memory is, in words |
//! | [`mosaic`] | running a command under the preload library |
//! | [`draw`] | pictures: rectangles and texts, written as SVG |
//! | [`text`] | text in eighty columns |

pub mod args;
pub mod contiguity;
pub mod draw;
pub mod exit;
pub mod hand_over;
pub mod journal;
pub mod mosaic;
pub mod recording;
pub mod settings;
pub mod signals;
pub mod text;
