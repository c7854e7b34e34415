//! A helper is no way out of a sandbox: it can do nothing that could reach beyond its memory, and nobody can make it.
//!
//! Its stack lies in the program's memory, so whoever has taken over the program may take over the helper. Later limits
//! of the program (a filter, another user, dropped capabilities) do not reach it; so it gives up everything beforehand.

use mega_range::page::Reason;
use mega_range::span::REGION;

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

/// Where the constants of [`FREES`] are in the filter: both halves of the address.
const PLACE_AT: [usize; 2] = [FREES_AT + 4, FREES_AT + 6];
const FREES_AT: usize = 4;
/// Steps that allow to free our own region, whose address is filled in, and nothing else.
const FREES: [Step; 14] = [
    step(EQUAL, 0, 13, number::MADVISE as u32),
    step(LOAD, 0, 0, THIRD_AT),
    step(EQUAL, 0, 10, advice::DONTNEED as u32),
    step(LOAD, 0, 0, FIRST_AT),
    step(EQUAL, 0, 7, 0),
    step(LOAD, 0, 0, FIRST_AT + 4),
    step(EQUAL, 0, 5, 0),
    step(LOAD, 0, 0, SECOND_AT),
    step(EQUAL, 0, 3, REGION as u32),
    step(LOAD, 0, 0, SECOND_AT + 4),
    step(EQUAL, 0, 1, 0),
    step(RETURN, 0, 0, ALLOW),
    step(RETURN, 0, 0, REFUSE),
    step(LOAD, 0, 0, NUMBER_AT),
];

const fn length() -> usize {
    let mut steps = FREES_AT + FREES.len();
    let mut call = 0;
    while call < ALLOWED.len() {
        let values = ALLOWED[call].values.len();
        steps += if values == 0 { 2 } else { 3 + 2 * values };
        call += 1;
    }
    steps + 1
}

/// The filter: after the architecture's check one rule after the other, and what none allows is refused.
const STEPS: [Step; length()] = {
    let mut steps = [step(RETURN, 0, 0, REFUSE); length()];
    steps[0] = step(LOAD, 0, 0, ARCHITECTURE_AT);
    steps[1] = step(EQUAL, 1, 0, X86_64);
    steps[3] = step(LOAD, 0, 0, NUMBER_AT);
    let mut at = FREES_AT;
    while at < FREES_AT + FREES.len() {
        steps[at] = FREES[at - FREES_AT];
        at += 1;
    }
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

/// What the filter says to a call.
const fn answer(number: usize, arguments: [u64; 3]) -> u32 {
    let (mut at, mut value) = (0, 0);
    loop {
        let step = &STEPS[at];
        at += 1;
        match step.code {
            LOAD => {
                let half = (step.value % 8) * 8;
                value = match step.value {
                    NUMBER_AT => number as u32,
                    ARCHITECTURE_AT => X86_64,
                    at => (arguments[(at - FIRST_AT) as usize / 8] >> half) as u32,
                }
            }
            EQUAL if value == step.value => at += step.on_true as usize,
            EQUAL => at += step.on_false as usize,
            _ => return step.value,
        }
    }
}

/// The filter is tried as it is built, for an own region at 0.
const _: () = {
    const MADV_FREE: usize = 8;
    assert!(answer(number::MADVISE, [0, REGION, advice::DONTNEED as u64]) == ALLOW);
    assert!(answer(number::MADVISE, [REGION, REGION, advice::DONTNEED as u64]) == REFUSE);
    assert!(answer(number::MADVISE, [1 << 32, REGION, advice::DONTNEED as u64]) == REFUSE);
    assert!(answer(number::MADVISE, [0, 2 * REGION, advice::DONTNEED as u64]) == REFUSE);
    assert!(answer(number::MADVISE, [0, REGION + (1 << 32), advice::DONTNEED as u64]) == REFUSE);
    assert!(answer(number::MADVISE, [0, REGION, MADV_FREE as u64]) == REFUSE);
    assert!(answer(number::MADVISE, [REGION, 2 * REGION, advice::COLLAPSE as u64]) == ALLOW);
    assert!(answer(number::IOCTL, [0, PAGEMAP_SCAN as u64, 0]) == ALLOW);
    assert!(answer(number::IOCTL, [0, advice::DONTNEED as u64, advice::DONTNEED as u64]) == REFUSE);
    assert!(answer(number::MMAP, [0, REGION, 3]) == REFUSE);
    assert!(answer(number::FUTEX, [0, 0, 0]) == ALLOW);
};

/// Gives up capabilities and every system call but those of looking and advising, and of freeing this region of our own.
pub fn confine(own: usize) -> Result<(), Reason> {
    let version = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    let (version, none) = (version.as_ptr() as usize, none.as_ptr() as usize);
    // SAFETY: header and data are of the version that the header says.
    let caps = unsafe { sys::call(number::CAPSET, [version, none, 0, 0, 0, 0]) };
    // SAFETY: takes privileges only.
    let privileges = unsafe { sys::call(number::PRCTL, [sys::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    let mut steps = STEPS;
    // No mapping begins at 1.
    let own = own.max(1);
    for (at, half) in PLACE_AT.into_iter().zip([own as u32, (own >> 32) as u32]) {
        if let Some(step) = steps.get_mut(at) {
            step.value = half;
        }
    }
    let program = Program {
        len: steps.len() as u16,
        steps: steps.as_ptr() as usize,
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
