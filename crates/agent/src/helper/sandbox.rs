//! A helper is no way out of a sandbox: it can do nothing that could reach beyond its memory, and nobody can make it.
//!
//! Its stack lies in the program's memory, so whoever has taken over the program may take over the helper. Later limits
//! of the program (a filter, another user, dropped capabilities) do not reach it; so it gives up everything beforehand.

use mega_range::page::Reason;

use crate::look::PAGEMAP_SCAN;
use crate::mappings::PROCMAP_QUERY;
use crate::sys::{self, advice, number};

/// An instruction of a filter (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Step {
    code: u16,
    on_true: u8,
    on_false: u8,
    value: u32,
}

#[repr(C)]
struct Program {
    len: u16,
    steps: usize,
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0001; // EPERM
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const SECOND_AT: u32 = 24;
const FIRST_AT: u32 = 16;
const THIRD_AT: u32 = 32;
const X86_64: u32 = 0xc000_003e;

const fn step(code: u16, on_true: u8, on_false: u8, value: u32) -> Step {
    Step {
        code,
        on_true,
        on_false,
        value,
    }
}

/// A call that the helper may make: its number, and where not all of its arguments are allowed, which one may be what.
struct Allowed {
    number: usize,
    argument: u32,
    values: &'static [usize],
}

const fn any(number: usize) -> Allowed {
    Allowed {
        number,
        argument: 0,
        values: &[],
    }
}

/// What the helper may call.
const ALLOWED: [Allowed; 8] = [
    any(number::FUTEX),
    any(number::PREAD),
    any(number::CLOCK_GETTIME),
    Allowed {
        number: number::MADVISE,
        argument: THIRD_AT,
        values: &[
            advice::HUGEPAGE,
            advice::NOHUGEPAGE,
            advice::COLD,
            advice::POPULATE_WRITE,
            advice::COLLAPSE,
        ],
    },
    Allowed {
        number: number::IOCTL,
        argument: SECOND_AT,
        values: &[PAGEMAP_SCAN, PROCMAP_QUERY],
    },
    Allowed {
        number: number::PRCTL,
        argument: FIRST_AT,
        values: &[sys::PR_GET_THP_DISABLE],
    },
    any(number::CLOSE),
    any(number::EXIT),
];

const fn length() -> usize {
    let mut steps = 4;
    let mut call = 0;
    while call < ALLOWED.len() {
        let values = ALLOWED[call].values.len();
        steps += if values == 0 { 2 } else { 3 + 2 * values };
        call += 1;
    }
    steps + 1
}

/// The filter: after the architecture's check one rule after the other, and what none allows is refused.
static STEPS: [Step; length()] = {
    let mut steps = [step(RETURN, 0, 0, REFUSE); length()];
    steps[0] = step(LOAD, 0, 0, ARCHITECTURE_AT);
    steps[1] = step(EQUAL, 1, 0, X86_64);
    steps[3] = step(LOAD, 0, 0, NUMBER_AT);
    let mut at = 4;
    let mut call = 0;
    while call < ALLOWED.len() {
        let allowed = &ALLOWED[call];
        let values = allowed.values.len();
        if values == 0 {
            steps[at] = step(EQUAL, 0, 1, allowed.number as u32);
            steps[at + 1] = step(RETURN, 0, 0, ALLOW);
            at += 2;
        } else {
            // Its values, and behind them the step that refuses all others.
            steps[at] = step(EQUAL, 0, 2 + 2 * values as u8, allowed.number as u32);
            steps[at + 1] = step(LOAD, 0, 0, allowed.argument);
            at += 2;
            let mut value = 0;
            while value < values {
                steps[at] = step(EQUAL, 0, 1, allowed.values[value] as u32);
                steps[at + 1] = step(RETURN, 0, 0, ALLOW);
                at += 2;
                value += 1;
            }
            at += 1;
        }
        call += 1;
    }
    steps
};

/// Gives up capabilities and every system call but those of looking and advising.
pub fn confine() -> Result<(), Reason> {
    let version = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    let (version, none) = (version.as_ptr() as usize, none.as_ptr() as usize);
    // SAFETY: header and data are of the version that the header says.
    let caps = unsafe { sys::call(number::CAPSET, [version, none, 0, 0, 0, 0]) };
    // SAFETY: takes privileges only.
    let privileges = unsafe { sys::call(number::PRCTL, [sys::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    let program = Program {
        len: STEPS.len() as u16,
        steps: STEPS.as_ptr() as usize,
    };
    const SET_MODE_FILTER: usize = 1;
    let at = &raw const program as usize;
    // SAFETY: a program of so many steps.
    let filter = unsafe { sys::call(number::SECCOMP, [SET_MODE_FILTER, 0, at, 0, 0, 0]) };
    match (caps, privileges, filter) {
        (Ok(_), Ok(_), Ok(_)) => Ok(()),
        _ => Err(Reason::NotConfined),
    }
}
