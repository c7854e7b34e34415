//! What Memomania decides, apart from any system call: which part of a pool has which pages, how that is written, and which parts of a
//! pool are in use.
//!
//! The preload library uses this before the program's allocator works: nothing here allocates, but for [`file`] and [`wire::encode`], which
//! the command alone uses.
//!
//! | module | subject |
//! | --- | --- |
//! | [`page`] | kinds of pages |
//! | [`layout`] | a pool as a list of intervals, and how people write it |
//! | [`settings`] | all that can be chosen, and which source has precedence |
//! | [`file`] | settings as a TOML file |
//! | [`wire`] | settings as one environment variable, from the command to the library |
//! | [`environ`] | finding that variable in `/proc/self/environ`, piece by piece |
//! | [`map`] | which pages of a pool are in use, and where there is room |
//! | [`request`] | which mappings a pool serves, and why not the others |
//! | [`report`] | what a process says of its pools |
//! | [`status`] | where others find that while it runs |
//! | [`program`] | whether a program can be preloaded at all |

pub mod environ;
#[cfg(feature = "file")]
pub mod file;
pub mod layout;
pub mod map;
pub mod page;
pub mod program;
pub mod report;
pub mod request;
pub mod settings;
pub mod status;
pub mod wire;
