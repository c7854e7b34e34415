//! Constructor, reading the environment, and forks.

use core::arch::asm;
use core::ffi::{c_char, CStr};
use core::sync::atomic::{AtomicUsize, Ordering};

use mega_range::intent::Intent;
use mega_range::page::Field;

use crate::settings::{self, Settings};
use crate::{birth, children, helper, libc, next, program, remap, status, sys, wait};

/// `off` starts nothing.
const SWITCH: &[u8] = b"MEGA_AGENT";
/// An [`Intent`].
const INTENT: &[u8] = b"MEGA_AGENT_FOR";
/// `off` reads no contents of huge pages.
const CONTENTS: &[u8] = b"MEGA_AGENT_CONTENTS";
/// A file for the status page; a `%` in its name stands for the process. Without one the page is in memory alone.
const STATUS: &[u8] = b"MEGA_AGENT_STATUS";
/// A folder of profiles.
const PROFILES: &[u8] = b"MEGA_AGENT_PROFILES";

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[link_section = ".fini_array"]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn destructor() {
    helper::leave();
    helper::reap_left();
}

/// The C library's `_exit`, looked up beforehand: it may be called by a signal handler in the middle of anything.
static EXIT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn constructor() {
    remap::begin();
    birth::begin();
    wait::begin();
    EXIT.store(next::function(c"_exit").unwrap_or(0), Ordering::Relaxed);
    let Some(address) = libc::environ() else { return };
    // SAFETY: the C library has set it before it runs constructors.
    begin(unsafe { *(address as *const usize) }, program::auxiliary);
}

/// Where there is no loader: entered once, on a stack of its own, by who has laid the library into the program's memory before that has begun
/// (`mega_linux::agent::inject`). It is told where the environment is, takes the breakpoint for the end, and finds in rax where system calls that map
/// memory are to go on.
#[no_mangle]
pub extern "C" fn mega_agent_begin(environment: usize) -> ! {
    // SAFETY: the program has not changed yet what the kernel has given it.
    begin(environment, |kind| unsafe {
        program::auxiliary_behind(environment, kind)
    });
    // SAFETY: nothing follows.
    unsafe { asm!("int3", in("rax") birth::of_static(), options(noreturn)) }
}

fn begin(environment: usize, auxiliary: impl Fn(usize) -> usize) {
    let switch = variable(environment, SWITCH);
    if switch.is_some_and(|value| value == b"off" || value == b"0") {
        return;
    }
    // SAFETY: this is the constructor: nobody reads yet.
    let settings = unsafe { settings::begin() };
    settings.stack = environment;
    settings.intent = variable(environment, INTENT)
        .and_then(Intent::by_name)
        .unwrap_or_default();
    settings.reads_contents = variable(environment, CONTENTS) != Some(b"off");
    settings.set_status(variable(environment, STATUS).unwrap_or(&[]));
    settings.key = program::key(auxiliary).unwrap_or(0);
    if let (Some(folder), 1..) = (variable(environment, PROFILES), settings.key) {
        settings.earlier = program::earlier(folder, settings.key);
    }
    status::open(settings.status(), sys::getpid());
    say_program(settings);
    helper::reap_left();
    children::begin();
    helper::start();
    if let Some(register) = libc::register_atfork() {
        type Register = extern "C" fn(usize, usize, extern "C" fn(), usize) -> i32;
        // SAFETY: glibc's signature. Without an object of its own the handler stays until the process ends, as we do.
        let register: Register = unsafe { core::mem::transmute(register) };
        register(0, 0, after_fork, 0);
    } else if let Some(register) = libc::pthread_atfork() {
        type Register = extern "C" fn(usize, usize, extern "C" fn()) -> i32;
        // SAFETY: POSIX' signature.
        let register: Register = unsafe { core::mem::transmute(register) };
        register(0, 0, after_fork);
    }
}

/// Ends the program as the C library's function of this name. Destructors do not run then, and without this the helper
/// would be left to whoever reaps orphans, which in many containers is nobody.
#[no_mangle]
pub extern "C" fn _exit(status: i32) -> ! {
    helper::leave();
    let exit = EXIT.load(Ordering::Relaxed);
    if exit != 0 {
        // SAFETY: the C library's signature.
        let exit: extern "C" fn(i32) -> ! = unsafe { core::mem::transmute(exit) };
        exit(status)
    }
    sys::exit_group(status)
}

/// [`_exit`] by another name.
#[no_mangle]
pub extern "C" fn _Exit(status: i32) -> ! {
    _exit(status)
}

/// In the child: the helper and the page are its parent's.
extern "C" fn after_fork() {
    status::forget();
    settings::forked();
    remap::forget();
    birth::forget();
    helper::forget();
    let settings = settings::settings();
    let name = settings.status();
    if name.is_empty() || name.contains(&b'%') {
        status::open_in_child(sys::getpid());
        say_program(settings);
    }
    helper::start_in_child();
}

fn say_program(settings: &Settings) {
    let [name, rest] = program::name();
    let earlier = settings.earlier;
    status::set(Field::Name, name);
    status::set(Field::NameRest, rest);
    status::set(Field::Program, settings.key);
    status::set(Field::Earlier, u64::from(earlier.dense) + u64::from(earlier.sparse));
}

/// A variable's value.
fn variable(environment: usize, name: &[u8]) -> Option<&'static [u8]> {
    let mut at = environment as *const *const c_char;
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: the environment is a list of strings that a null pointer ends; in the constructor it is intact.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        // SAFETY: the list goes on up to its null pointer.
        at = unsafe { at.add(1) };
    }
}
