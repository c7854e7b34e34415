//! The agent in a program that has no loader to preload it: static programs, as Go makes them.
//!
//! A tracer that lives for some milliseconds lays the library into the program's memory before the program has done anything, has its only
//! thread call the library's beginning, puts all registers back and lets go. From then on there is no difference: a helper process looks and acts.
//!
//! ```text
//!   mega ──exec──► program: its first calls ─┐ stopped: mmap, mprotect, mega_agent_begin ─► goes on as if nothing had been
//!    └─ fork ─► tracer ──────────────────────┘ detaches and ends
//! ```
//!
//! When: before the first system call that no program begins with. By then a C library has told the kernel where to clear the number of the first
//! thread, and keeps it there: the helper waits for that. Go has no C library, and the agent tells the kernel itself.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::image::{Image, ImageError};
use super::patch::{self, Sites};
use crate::sys::trace::{self, Registers, Stop, Tracee};

/// System calls that programs begin with before they have a first thread: brk, mprotect, arch_prctl, set_tid_address.
const BEGINNING: [i64; 4] = [
    libc::SYS_brk,
    libc::SYS_mprotect,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
];
/// Calls until then at most.
const MOST_CALLS: u32 = 64;
const STACK_BYTES: u64 = 64 << 10;
/// `syscall`.
const CALL: [u8; 2] = [0x0f, 0x05];
/// The bit of the flags that turns copying around: no function begins with it set.
const DIRECTION: u64 = 1 << 10;

/// Has this library begin in the program that this process is about to become. To be called while there is one thread.
///
/// # Errors
/// The library cannot be read, or is no agent; this process may not be traced, or is already.
pub fn before_exec(library: &Path) -> Result<(), InjectError> {
    let file = std::fs::read(library).map_err(InjectError::Unreadable)?;
    let agent = Image::of(&file)?;
    // Told here: the tracer has nobody to tell.
    agent.at(0)?;
    let followed = trace::be_followed(|traced| {
        let _ = until_it_may_begin(&traced).map(|at| at.map(|at| begin(&traced, &agent, &at)));
        // It may have ended.
        let _ = traced.detach();
    });
    followed.map_err(InjectError::Untraceable)
}

/// Why the agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The library cannot be read.
    #[error("cannot read the agent")]
    Unreadable(#[source] io::Error),
    /// It is something else.
    #[error("cannot use the agent")]
    NoAgent(#[from] ImageError),
    /// We may not be traced.
    #[error("it is static, and cannot be traced at its start")]
    Untraceable(#[source] Errno),
}

/// Where the program stands when the agent may begin.
struct At {
    /// The instruction of its next system call.
    call: u64,
    /// What it is to go on with.
    registers: Registers,
    /// Where its environment is.
    environment: u64,
}

fn until_it_may_begin(traced: &Tracee) -> Result<Option<At>, Errno> {
    let mut environment = None;
    let mut calls = 0;
    loop {
        let signal = match traced.wait()? {
            Stop::Ended => return Ok(None),
            Stop::Exec => {
                let stack = traced.registers()?.rsp;
                // The number of arguments, the arguments, a null, the environment.
                let arguments = traced.word(stack)?;
                environment = Some(stack + 8 * (arguments + 2));
                0
            }
            Stop::Enters(call) => {
                calls += 1;
                let is_beginning = BEGINNING.contains(&(call as i64)) && calls <= MOST_CALLS;
                if let (Some(environment), false) = (environment, is_beginning) {
                    return before_call(traced, environment).map(Some);
                }
                0
            }
            Stop::Signal(signal) => signal,
            Stop::Halted => {
                traced.listen()?;
                continue;
            }
            Stop::Leaves | Stop::Other => 0,
        };
        traced.to_next_call(signal)?;
    }
}

/// Skips the call that it is about to make; it is made when the program goes on.
fn before_call(traced: &Tracee, environment: u64) -> Result<At, Errno> {
    let entered = traced.registers()?;
    let mut skipped = entered;
    skipped.orig_rax = u64::MAX;
    traced.set_registers(&skipped)?;
    traced.to_next_call(0)?;
    let left = traced.wait()?;
    let mut again = entered;
    again.rax = entered.orig_rax;
    again.orig_rax = u64::MAX;
    again.rip = entered.rip - CALL.len() as u64;
    traced.set_registers(&again)?;
    if left != Stop::Leaves || traced.code(again.rip)? != CALL {
        return Err(Errno::NOSYS);
    }
    Ok(At {
        call: again.rip,
        registers: again,
        environment,
    })
}

fn begin(traced: &Tracee, agent: &Image<'_>, at: &At) -> Result<(), Errno> {
    let mut held = Vec::new();
    let vectors = traced.vectors()?;
    let done = begin_in(traced, agent, at, &mut held);
    // Whatever came of it.
    traced.set_registers(&at.registers)?;
    traced.set_vectors(&vectors)?;
    for signal in held {
        traced.send(signal);
    }
    done
}

fn begin_in(traced: &Tracee, agent: &Image<'_>, at: &At, held: &mut Vec<i32>) -> Result<(), Errno> {
    let bytes = agent.bytes + STACK_BYTES;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let base = call(
        traced,
        at,
        held,
        libc::SYS_mmap,
        [0, bytes, protection, kind, u64::MAX, 0],
    )?;
    let laid = lay(traced, agent, at, held, base);
    if laid.is_err() {
        let _ = call(traced, at, held, libc::SYS_munmap, [base, bytes, 0, 0, 0, 0]);
        return laid;
    }
    let mut registers = at.registers;
    registers.rip = base + agent.begin;
    // As if it had been called.
    registers.rsp = base + bytes - 8;
    registers.rdi = at.environment;
    registers.rbp = 0;
    registers.eflags &= !DIRECTION;
    traced.set_registers(&registers)?;
    traced.go_on()?;
    let trap = loop {
        match traced.wait()? {
            Stop::Signal(signal) if is_fault(signal) => break signal,
            Stop::Signal(signal) => held.push(signal),
            Stop::Ended => return Err(Errno::SRCH),
            _ => {}
        }
        traced.go_on()?;
    };
    // The beginning ends with a breakpoint.
    if trap != libc::SIGTRAP {
        return Err(Errno::NOEXEC);
    }
    let called = traced.registers()?.rax;
    // Without it the helper looks what was mapped, later.
    let _ = pass_by(traced, at, held, called);
    Ok(())
}

/// Has the program's own system calls that map or move memory come by the agent's `called`.
fn pass_by(traced: &Tracee, at: &At, held: &mut Vec<i32>, called: u64) -> Result<(), Errno> {
    let program = traced.program().map_err(|_| Errno::NOENT)?;
    let sites = Sites::of(&program, traced.entry()?).map_err(|_| Errno::NOEXEC)?;
    drop(program);
    if sites.list.is_empty() {
        return Ok(());
    }
    let base = page_below(traced, at, held, sites.start)?;
    let (page, places) = patch::page(base, &sites.list, called).ok_or(Errno::RANGE)?;
    traced.write(base, &page)?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let protect = [base, patch::PAGE, executable, 0, 0, 0];
    call(traced, at, held, libc::SYS_mprotect, protect)?;
    for (site, place) in sites.list.into_iter().zip(places) {
        let word = traced.word(site.address)?;
        if let Some(jump) = patch::jump(word, site.address, place).filter(|_| patch::is_call(word, site)) {
            traced.set_word(site.address, jump)?;
        }
    }
    Ok(())
}

/// A page of the program's, a little below this address: what it has mapped itself grows upwards from there.
fn page_below(traced: &Tracee, at: &At, held: &mut Vec<i32>, start: u64) -> Result<u64, Errno> {
    const STEP: u64 = 64 << 10;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let mut why = Errno::NOMEM;
    for below in 1..=32 {
        let Some(place) = start.checked_sub(below * STEP).filter(|place| *place >= STEP) else {
            break;
        };
        let place = place / patch::PAGE * patch::PAGE;
        let arguments = [place, patch::PAGE, protection, kind, u64::MAX, 0];
        match call(traced, at, held, libc::SYS_mmap, arguments) {
            Ok(base) if base == place => return Ok(base),
            // Linux before 4.17 takes the address for a wish.
            Ok(base) => {
                call(traced, at, held, libc::SYS_munmap, [base, patch::PAGE, 0, 0, 0, 0])?;
                break;
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// A signal that says what the thread itself has done.
fn is_fault(signal: i32) -> bool {
    [
        libc::SIGTRAP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGSYS,
    ]
    .contains(&signal)
}

fn lay(traced: &Tracee, agent: &Image<'_>, at: &At, held: &mut Vec<i32>, base: u64) -> Result<(), Errno> {
    let content = agent.at(base).map_err(|_| Errno::NOEXEC)?;
    for part in &agent.parts {
        let (start, end) = (part.start as usize, (part.start + part.bytes) as usize);
        // What is zero is there already, and stays untouched.
        let filled = content.get(start..end).unwrap_or_default();
        let filled = &filled[..filled.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
        if !filled.is_empty() {
            traced.write(base + part.start, filled)?;
        }
    }
    for part in &agent.parts {
        let protect = [base + part.start, part.bytes, part.protection.into(), 0, 0, 0];
        call(traced, at, held, libc::SYS_mprotect, protect)?;
    }
    Ok(())
}

/// Has the program make a system call.
fn call(traced: &Tracee, at: &At, held: &mut Vec<i32>, number: i64, arguments: [u64; 6]) -> Result<u64, Errno> {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    let registers = Registers {
        rip: at.call,
        rax: number as u64,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..at.registers
    };
    traced.set_registers(&registers)?;
    let mut has_entered = false;
    loop {
        traced.to_next_call(0)?;
        match traced.wait()? {
            Stop::Enters(_) => has_entered = true,
            Stop::Leaves if has_entered => break,
            Stop::Signal(signal) => held.push(signal),
            Stop::Ended => return Err(Errno::SRCH),
            _ => {}
        }
    }
    let answer = traced.registers()?.rax as i64;
    match answer {
        -4095..=-1 => Err(Errno::from_raw_os_error(-answer as i32)),
        _ => Ok(answer as u64),
    }
}
