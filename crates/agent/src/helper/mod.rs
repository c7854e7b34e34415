//! What runs beside the program.
//!
//! A program without threads gets a process that shares its memory ([`process`]): neither the C library nor the kernel
//! takes the program for multithreaded then. With its first thread a thread takes over ([`thread`]): it ends with the
//! program, moves to other control groups with it, changes its user with it, and is not counted as a process.

pub mod process;
mod sandbox;
mod thread;

use mega_range::page::{Field, Reason};

use crate::{children, status};

/// Starts what suits the program.
pub fn start() {
    thread::allow();
    if thread::is_started() {
        return;
    }
    if let Err(reason) = process::start() {
        say(reason);
    }
}

/// In a forked child: starts what suits it, unless it will be over before that is of use.
pub fn start_in_child() {
    if children::born() {
        start();
    } else {
        thread::allow();
        say(Why::Reason(Reason::ShortChildren));
    }
}

/// At the program's end: the helper leaves first, so that nobody has to reap it.
pub fn leave() {
    process::leave();
}

/// Has a helper that is a process leave for this reason.
pub fn leave_for(reason: Reason) {
    if process::leave() {
        say(Why::Reason(reason));
    }
}

/// Reaps the helper of the program that this one took the place of by an exec.
pub fn reap_left() {
    process::reap_left();
}

/// After a fork: the helper is the parent's.
pub fn forget() {
    thread::forget();
    process::forget();
}

/// Says why there is no helper.
fn say(why: Why) {
    status::set(Field::Helper, 0);
    status::set(
        Field::Reason,
        match why {
            Why::Error(error) => u64::from(error.0.unsigned_abs()),
            Why::Reason(reason) => reason as u64,
        },
    );
}

/// Why there is no helper.
pub enum Why {
    Error(crate::sys::Errno),
    Reason(Reason),
}
