//! Memomania's preload library: a program's memory on any mixture of 4 KB, 2 MB and 1 GB pages.
//!
//! ```text
//!   the program          malloc, free ...        mmap, munmap, mprotect, madvise, mremap, brk
//!                             │                               │
//!   hooks                   heap (mimalloc) ── mprotect ──► mapping ──► the kernel, for what no pool serves
//!                                                             │
//!   pools                                        heap    brk    anon      each one reservation
//!                                                             │
//!   backing                               hugetlb 1 GB, 2 MB │ THP │ base pages
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | [`sys`] | system calls, raw: the C library's would be our own |
//! | [`lock`] | the one lock, with signals held back |
//! | [`world`] | settings and pools, behind the lock; made at the first call of any of our functions |
//! | [`start`] | how they are made |
//! | [`pool`] | a pool: mapping, unmapping, protecting and advising parts of it; its pages replaced, and at a fork |
//! | [`demote`] | a hugetlb page replaced by base pages while the program uses it |
//! | [`mapping`] | the mmap family over pools and kernel |
//! | [`brk`] | the program break |
//! | [`heap`] | the malloc family |
//! | [`fork`] | what hugetlb needs when the program forks |
//! | [`report`] | counters, and the line at exit |
//! | [`hooks`] | the functions that stand in for the C library's |
//!
//! Rules: no call that could come back to us while the lock is held, so no allocation and nothing of the C library but `errno`;
//! no state that another thread could see half made; what is not certain to be right is left to the kernel.

mod brk;
mod demote;
mod fork;
mod heap;
mod hooks;
mod lock;
mod mapping;
mod pool;
mod report;
mod start;
mod sys;
mod world;

/// Makes the library ready; [`world::ready`] calls it, and what it starts asks [`world`].
const START: fn() = start::start;
