//! `libmega_agent.so`: preloaded into a program, it has the kernel map huge pages where they pay. It needs no privilege.
//!
//! A helper beside the program looks at the program's own mappings and page tables, decides by the rules of
//! [`mega_range`], and acts by `madvise` on the program's own memory. Nothing here uses the program's C library beyond
//! the few symbols of `libc`, allocates, or leaves a descriptor in the program's table. Interposed are
//! `pthread_create`, the moment from which on a thread is the better helper; `_exit`, after which the helper has nobody
//! to reap it; `mmap`, whose memory is filled before the helper has seen it; `mremap`, which fails while advice has
//! reached a part of a mapping; and `wait4`, `waitpid` and `waitid`, by which tracers wait for the helper, too.
//!
//! | module | subject |
//! | --- | --- |
//! | `start` | constructor, reading the environment, fork |
//! | `settings` | what the environment said |
//! | `helper` | what runs beside the program: a process that shares its memory, or a thread |
//! | `children` | which forked children get a helper at once |
//! | `tick` | look, decide, act; how soon again |
//! | `mappings` | which mappings there are |
//! | `look` | what is populated in them |
//! | `machine` | settings, free blocks, limits of control groups |
//! | `act` | carries out orders |
//! | `program` | which program this is, and what earlier runs of it have shown |
//! | `birth` | `mmap`: advice before the first touch |
//! | `remap` | `mremap` while advice is under way |
//! | `wait` | waits for children of all kinds: the helper leaves first |
//! | `status` | the page that says what was done |
//! | `memory` | copying and comparing bytes, without the C library |
//! | `libc` | weak symbols of the C library |
//! | `next` | the function of a name that the program would have called without us |
//! | `sys` | system calls |
//! | `text` | numbers in the kernel's text files |
//!
//! Built with `panic = "abort"` (the profile `agent`) it does without `std` altogether; any other build links `std` for
//! its panic handler only.

#![no_std]

#[cfg(panic = "unwind")]
extern crate std;

mod act;
mod birth;
mod children;
mod helper;
mod libc;
mod look;
mod machine;
mod mappings;
#[cfg(panic = "abort")]
mod memory;
mod next;
mod program;
mod remap;
mod settings;
mod start;
mod status;
mod sys;
mod text;
mod tick;
mod wait;
mod warm;

/// Nothing here panics by design; if it does, the helper leaves and the program goes on.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit_thread(1)
}
