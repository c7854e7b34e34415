//! A helper that is a process of its own and shares the program's memory (`clone(CLONE_VM)`).
//!
//! It has none of the program's descriptors, signals, terminal or current folder, sends no signal when it ends, and no
//! `wait` of the program sees it. It sleeps on the word that the kernel zeroes when the program's first thread ends or
//! execs, and so leaves at once when the program does.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use mega_range::children::SHORT_NS;
use mega_range::page::{Field, Reason};

use super::{sandbox, say, Why};
use crate::text::{digits_of, Path};
use crate::{children, settings, status, sys, tick};

/// The helper's process, while there is one.
static HELPER: AtomicI32 = AtomicI32::new(0);
/// The program's process, whose helper this is.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The helper is to leave: see [`Reason`].
static STOP: AtomicU32 = AtomicU32::new(0);
/// Where the kernel keeps the number of the program's first thread while it lives.
static TID_WORD: AtomicUsize = AtomicUsize::new(0);
/// The same where the program has no C library.
static OWN_WORD: AtomicI32 = AtomicI32::new(0);
/// The end of the helper's stack, which forked processes use again.
static STACK: AtomicUsize = AtomicUsize::new(0);

const STACK_BYTES: usize = 64 << 10;

/// Starts it. To be called by the program's only thread.
pub fn start() -> Result<(), Why> {
    let pid = sys::getpid();
    let mut word = 0usize;
    // SAFETY: it writes a word.
    unsafe { sys::prctl(sys::PR_GET_TID_ADDRESS, &raw mut word as usize) }.map_err(Why::Error)?;
    if word == 0 {
        // No C library has asked for it, as in a Go program: it never will.
        word = OWN_WORD.as_ptr() as usize;
        OWN_WORD.store(pid, Ordering::Relaxed);
        // SAFETY: the kernel clears the word when the first thread ends.
        unsafe { sys::call(sys::number::SET_TID_ADDRESS, [word, 0, 0, 0, 0, 0]) }.map_err(Why::Error)?;
    }
    // SAFETY: the word is the C library's, or ours, and stays.
    if word % 4 != 0 || unsafe { thread_of(word) } != pid as u32 {
        return Err(Why::Reason(Reason::NoTidWord));
    }
    let mut stack = STACK.load(Ordering::Relaxed);
    if stack == 0 {
        stack = sys::map_stack(STACK_BYTES).map_err(Why::Error)?;
        STACK.store(stack, Ordering::Relaxed);
    }
    OWNER.store(pid, Ordering::Relaxed);
    STOP.store(0, Ordering::Relaxed);
    TID_WORD.store(word, Ordering::Relaxed);
    status::set(Field::Helper, 1);
    // No handler of the program may ever run in the helper, which inherits what is blocked now.
    let blocked = sys::block_signals(u64::MAX);
    // SAFETY: the stack is the helper's alone. The table of descriptors is shared until the helper takes one of its own.
    let helper = unsafe { sys::clone(sys::CLONE_VM | sys::CLONE_FILES, stack, main, pid as usize) };
    sys::block_signals(blocked);
    HELPER.store(helper.map_err(Why::Error)?, Ordering::Release);
    Ok(())
}

/// The thread in this word; none once it has ended or execed.
///
/// # Safety
/// The word must be mapped.
unsafe fn thread_of(word: usize) -> u32 {
    // SAFETY: the caller's; the kernel writes it at any moment.
    unsafe { &*(word as *const AtomicU32) }.load(Ordering::Acquire)
}

extern "C" fn main(pid: usize) -> ! {
    // After an exec the file of the page is the next program's.
    match helper(pid as u32) {
        Reason::ProgramLeft => {}
        reason => say(Why::Reason(reason)),
    }
    sys::exit_thread(0)
}

fn helper(pid: u32) -> Reason {
    if sys::close_all().is_err() {
        return Reason::NotConfined;
    }
    // SAFETY: changes this process alone: its session, current folder, name, timers, and what it gets when the
    // program's first thread ends.
    unsafe {
        let _ = sys::call(sys::number::SETSID, [0; 6]);
        let _ = sys::call(sys::number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
        let _ = sys::prctl(sys::PR_SET_NAME, c"mega-agent".as_ptr() as usize);
        let _ = sys::prctl(sys::PR_SET_TIMERSLACK, 1);
        const SIGKILL: usize = 9;
        let _ = sys::prctl(sys::PR_SET_PDEATHSIG, SIGKILL);
    }
    sys::run_in_short_slices();
    let word = TID_WORD.load(Ordering::Relaxed);
    let left = || {
        // SAFETY: the word is mapped as long as the memory is, which is this helper's, too.
        let is_there = STOP.load(Ordering::Acquire) == 0 && unsafe { thread_of(word) } == pid;
        if is_there {
            Ok(())
        } else {
            Err(Reason::ProgramLeft)
        }
    };
    // Many forked children end soon, or execute another program: until then there is nothing to be opened for.
    if children::is_new() {
        // SAFETY: as above.
        unsafe { sys::futex_wait(word, pid, SHORT_NS) };
        children::was_short(left().is_err());
    }
    // Many programs are over before all this is done, and wait for the helper to leave.
    let ready = left().and_then(|()| {
        let settings = settings::settings();
        status::to_file(settings.status(), pid as i32);
        // SAFETY: this is the one helper.
        unsafe { tick::open(settings, pid as i32) }
    });
    let ready = match ready.and_then(|ready| left().and_then(|()| sandbox::confine(ready.own)).map(|()| ready)) {
        Ok(ready) => ready,
        Err(reason) => return reason,
    };
    // SAFETY: this is the one helper.
    unsafe {
        tick::run(&ready, |pause| {
            left()?;
            // SAFETY: as above.
            sys::futex_wait(word, pid, pause);
            left()
        })
    }
}

/// Has the helper leave, and reaps it; gives up where it is in a long call. False: there was none.
pub fn leave() -> bool {
    let helper = HELPER.load(Ordering::Acquire);
    if helper == 0 || OWNER.load(Ordering::Relaxed) != sys::getpid() {
        return false;
    }
    STOP.store(1, Ordering::Release);
    // It is gone within 0.1 ms, sooner than a sleep would end.
    const YIELDS: u32 = 200;
    const SLEEPS: u32 = 40;
    const SLEEP_NS: u64 = 50_000;
    for turn in 0..YIELDS + SLEEPS {
        if turn % 16 == 0 || turn > YIELDS {
            sys::futex_wake(TID_WORD.load(Ordering::Relaxed));
        }
        if reap(helper, false) {
            break;
        }
        if turn < YIELDS {
            sys::yield_now();
        } else {
            // SAFETY: a word of ours.
            unsafe { sys::futex_wait(STOP.as_ptr() as usize, 1, SLEEP_NS) };
        }
    }
    HELPER.store(0, Ordering::Release);
    true
}

/// Has the helper leave, and waits until it is gone.
pub fn end() {
    let helper = HELPER.swap(0, Ordering::AcqRel);
    if helper == 0 {
        return;
    }
    STOP.store(1, Ordering::Release);
    sys::futex_wake(TID_WORD.load(Ordering::Relaxed));
    while !reap(helper, true) {}
}

/// Whether the helper is gone.
fn reap(helper: i32, is_waiting: bool) -> bool {
    const CLONED: usize = 0x8000_0000;
    const NO_HANG: usize = 1;
    const EINTR: sys::Errno = sys::Errno(4);
    let options = if is_waiting { CLONED } else { CLONED | NO_HANG };
    // SAFETY: asks for no status.
    let reaped = unsafe { sys::call(sys::number::WAIT4, [helper as usize, 0, options, 0, 0, 0]) };
    reaped != Ok(0) && reaped != Err(EINTR)
}

/// Reaps the helpers that have ended and were left to us: those of the programs that this process was before its execs.
pub fn reap_left() {
    const MOST: u32 = 64;
    for _ in 0..MOST {
        if !reap_one_left() {
            break;
        }
    }
}

fn reap_one_left() -> bool {
    const EXITED_CLONE_NO_HANG: usize = 0x8000_0000 | 4 | 1;
    const NO_WAIT: usize = 0x0100_0000;
    const PROCESS: usize = 1;
    // The kernel's information on a signal has its process at byte 16, behind three words and padding.
    let mut information = [0u32; 32];
    let at = information.as_mut_ptr() as usize;
    // SAFETY: room for the information.
    let seen = unsafe { sys::call(sys::number::WAITID, [0, 0, at, EXITED_CLONE_NO_HANG | NO_WAIT, 0, 0]) };
    let &[_, _, _, _, pid, ..] = &information;
    if seen.is_err() || pid == 0 || !is_helper(pid) {
        return false;
    }
    // SAFETY: as above.
    let reaped = unsafe {
        sys::call(
            sys::number::WAITID,
            [PROCESS, pid as usize, at, EXITED_CLONE_NO_HANG, 0, 0],
        )
    };
    reaped.is_ok()
}

fn is_helper(pid: u32) -> bool {
    let mut digits = [0u8; 12];
    let path = Path::of(&[b"/proc/", digits_of(pid, &mut digits), b"/comm"]);
    let Some(file) = path.and_then(|path| sys::open(path.bytes(), sys::O_RDONLY | sys::O_CLOEXEC).ok()) else {
        return false;
    };
    let mut name = [0u8; 32];
    let is_helper = sys::pread(file, &mut name, 0) == Ok(b"mega-agent\n");
    sys::close(file);
    is_helper
}

/// After a fork: the helper is the parent's.
pub fn forget() {
    HELPER.store(0, Ordering::Relaxed);
}
