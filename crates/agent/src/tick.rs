//! Look, decide, act; how soon again.

use core::cell::UnsafeCell;

use mega_range::auto::{Auto, Pace};
use mega_range::birth::Births;
use mega_range::density::{Density, DENSE_REGIONS};
use mega_range::orders::Orders;
use mega_range::page::{Field, Reason};
use mega_range::span::REGION;
use mega_range::warm::Warmth;
use mega_range::world::Conditions;

use crate::act::Hands;
use crate::birth;
use crate::children;
use crate::look::Look;
use crate::machine::{Machine, Resident};
use crate::mappings::Mappings;
use crate::settings::{self, Settings};
use crate::status;
use crate::sys::{self, Result};
use crate::warm;

/// A program with less memory of its own is only asked for its size. Well before there are enough regions to judge by:
/// the first look is dear, since it touches the tables that it fills.
const LEAST_BYTES: u64 = REGION;
/// The shortest pause while a region that was left to the program may be reached at any moment.
const AHEAD_NS: u64 = 50_000;
/// The pause while something happens.
const GROWING_NS: u64 = 2_000_000;
/// The same until the program has filled enough to be judged by: each region that it fills before it is advised stays on
/// base pages until it is collapsed.
const FIRST_NS: u64 = 500_000;
/// With more than this it would have been advised: it does not fill in order.
const FIRST_BYTES: u64 = 32 * REGION;
/// The same once what the program maps is advised at birth, as long as none of its mappings were made unseen.
const KNOWN_NS: u64 = 10_000_000;
const UNSEEN_NS: u64 = 250_000_000;
/// The pause between collapses.
const SWEEP_NS: u64 = 10_000_000;
/// The longest pause, and the part of it by which each is longer than the last: a program that has just begun to wait
/// may soon go on, and fills a region in less than a millisecond.
const IDLE_NS: u64 = 300_000_000;
const IDLE_PART: u64 = 64;
/// Looks take a tenth of a processor at most, while nothing is done; a fiftieth where no processor is spare.
const LOOK_SHARE: u64 = 9;
const BUSY_LOOK_SHARE: u64 = 49;
/// How soon mappings are read again: while populating ahead, and where what is mapped is as much as it was.
const MAPPINGS_NS: u64 = 2_000_000;
const SAME_MAPPINGS_NS: u64 = 20_000_000;
/// How long a change of mappings counts as such.
const MAPPING_NS: u64 = 50_000_000;
/// How soon what rarely changes is looked at again.
const RARELY_NS: u64 = 1_000_000_000;

/// All that the helper knows: zero at first, so that it costs memory only once it is used.
struct Mind {
    auto: Auto,
    look: Look,
    mappings: Mappings,
    machine: Machine,
    orders: Orders,
    warmth: Warmth,
}

struct Place(UnsafeCell<Mind>);

// SAFETY: only the one helper of the process uses it.
unsafe impl Sync for Place {}

static MIND: Place = Place(UnsafeCell::new(Mind {
    auto: Auto::new(),
    look: Look::new(),
    mappings: Mappings::new(),
    machine: Machine::new(),
    orders: Orders::new(),
    warmth: Warmth::new(),
}));

/// What is opened before the helper confines itself.
pub struct Ready {
    maps: i32,
    pagemap: i32,
    contents: Option<i32>,
    partly: Option<i32>,
    /// A region of our own: see `warm.rs`.
    pub own: usize,
}

/// Opens what is needed to help this process.
///
/// # Safety
/// Only the one helper of the process may call this.
pub unsafe fn open(settings: &Settings, program: i32) -> core::result::Result<Ready, Reason> {
    // SAFETY: the caller's.
    let mind = unsafe { &mut *MIND.0.get() };
    let open = |path: &[u8]| -> Result<i32> { sys::open(path, sys::O_RDONLY | sys::O_CLOEXEC) };
    let maps = open(b"/proc/self/maps\0").map_err(|_| Reason::NoProc)?;
    let pagemap = open(b"/proc/self/pagemap\0").map_err(|_| Reason::NoProc)?;
    mind.machine.begin(program).ok_or(Reason::NoProc)?;
    mind.auto.begin(settings.intent, settings.earlier);
    mind.mappings.begin(settings.stack as u64);
    let partly = open(b"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/stats/nr_anon_partially_mapped\0").ok();
    let contents = if settings.reads_contents {
        open(b"/proc/self/mem\0").ok()
    } else {
        None
    };
    mind.look.begin(pagemap, contents, partly);
    mind.warmth = Warmth::new();
    Ok(Ready {
        maps,
        pagemap,
        contents,
        partly,
        own: warm::open(),
    })
}

/// Looks and acts until `nap` says that it is over.
///
/// # Safety
/// Only the one helper of the process may call this.
pub unsafe fn run(ready: &Ready, mut nap: impl FnMut(u64) -> core::result::Result<(), Reason>) -> Reason {
    // SAFETY: the caller's.
    let mind = unsafe { &mut *MIND.0.get() };
    mind.look.begin(ready.pagemap, ready.contents, ready.partly);
    birth::allow(Births::default(), 0);
    let mut state = State::default();
    // What earlier runs have shown is of use from the first mapping on.
    if settings::settings().earlier != Density::NONE {
        state.is_awake = true;
        if let Some(resident) = mind.machine.resident().map(|resident| resident.bytes) {
            let now = sys::now_ns();
            mind.machine.look(now);
            let births = mind.auto.births(&conditions(mind, &state, now, resident));
            birth::allow(births, now);
        }
    }
    let mut pause = GROWING_NS;
    loop {
        if let Err(reason) = nap(pause) {
            return reason;
        }
        match tick(mind, ready.maps, &mut state) {
            Ok(next) => pause = next,
            Err(reason) => return reason,
        }
    }
}

#[derive(Default)]
struct State {
    resident: u64,
    peak: u64,
    idle_ns: u64,
    ahead_ns: u64,
    decided_ns: u64,
    mappings_ns: u64,
    mapped: [u64; 2],
    mapping_ns: u64,
    unseen_ns: u64,
    rarely_ns: u64,
    is_awake: bool,
    has_looked: bool,
    is_disabled: bool,
}

fn tick(mind: &mut Mind, maps: i32, state: &mut State) -> core::result::Result<u64, Reason> {
    let now = sys::now_ns();
    status::add(Field::Ticks, 1);
    let Resident {
        bytes: resident,
        anonymous,
        mapped,
    } = mind.machine.resident().ok_or(Reason::NoProc)?;
    state.peak = state.peak.max(resident);
    status::set(Field::Resident, resident);
    status::set(Field::Peak, state.peak);
    let grew = resident > state.resident.saturating_add(REGION / 2);
    let changed = grew || resident.saturating_add(REGION / 2) < state.resident;
    if changed {
        state.resident = resident;
    }
    let idle = |state: &mut State| {
        state.idle_ns = (state.idle_ns + state.idle_ns / IDLE_PART).clamp(GROWING_NS, IDLE_NS);
        state.idle_ns
    };
    if grew {
        state.idle_ns = 0;
    }
    state.is_awake |= anonymous >= LEAST_BYTES;
    if !state.is_awake {
        return Ok(idle(state));
    }
    if now.saturating_sub(state.rarely_ns) > RARELY_NS {
        state.rarely_ns = now;
        // SAFETY: asks only. 1 is the flag without exceptions.
        state.is_disabled = unsafe { sys::prctl(sys::PR_GET_THP_DISABLE, 0) } == Ok(1);
    }
    let is_ahead = state.ahead_ns > 0;
    let is_due = now.saturating_sub(state.decided_ns) > RARELY_NS;
    if state.is_disabled || !(changed || is_ahead || is_due || !mind.auto.is_swept()) {
        return Ok(idle(state));
    }
    state.decided_ns = now;
    let begun = sys::processor_ns();
    mind.machine.look(now);
    let since = now.saturating_sub(state.mappings_ns);
    let is_other = state.mapped != mapped || birth::has_news();
    if since > SAME_MAPPINGS_NS || (is_other && (!is_ahead || since > MAPPINGS_NS)) {
        state.mappings_ns = now;
        state.mapped = mapped;
        // Whatever was born by now is among the mappings that are read after it.
        let born = birth::take();
        mind.mappings.read(maps).map_err(|_| Reason::NoProc)?;
        let changes = mind.auto.follow(mind.mappings.list());
        let mut known = 0;
        for (address, birth) in born.into_iter().flatten() {
            mind.auto.born(address, birth);
            known += 1;
        }
        if changes > 0 {
            state.mapping_ns = now;
        }
        if changes > known {
            state.unseen_ns = now;
        }
        status::set(Field::Ranges, mind.auto.table().ranges().len() as u64);
        status::set(Field::Missed, mind.auto.table().missed());
    }
    let conditions = conditions(mind, state, now, resident);
    let pace = mind.auto.decide(&conditions, &mut mind.look, &mut mind.orders);
    let births = mind.auto.births(&conditions);
    birth::allow(births, now);
    let seen = mind.auto.seen();
    status::set(Field::Dense, seen.dense.into());
    status::set(Field::Sparse, seen.sparse.into());
    status::set(Field::Holes, seen.holes.into());
    let looked = sys::processor_ns().saturating_sub(begun);
    status::add(Field::Looks, 1);
    status::add(Field::LookNs, looked);
    act_on(mind, maps);
    let acted = sys::processor_ns().saturating_sub(begun).saturating_sub(looked);
    let share = match pace {
        Pace::Growing | Pace::Idle if conditions.is_busy => BUSY_LOOK_SHARE,
        _ => LOOK_SHARE,
    };
    // The first look is no measure.
    let share = if state.has_looked { share } else { 0 };
    state.has_looked = true;
    let floor = looked.saturating_mul(share).saturating_sub(acted);
    let is_seen = births.resident_bytes > 0 && now.saturating_sub(state.unseen_ns) > UNSEEN_NS;
    let is_first = seen.dense < DENSE_REGIONS && resident < FIRST_BYTES;
    let growing = if is_first {
        FIRST_NS
    } else if is_seen {
        KNOWN_NS
    } else {
        GROWING_NS
    };
    let pause = match pace {
        Pace::Ahead => {
            let has_acted = !mind.orders.list().is_empty();
            // Something else may grow meanwhile.
            let slowest = if grew { growing } else { SWEEP_NS };
            let slower = state.ahead_ns + state.ahead_ns / 8;
            state.ahead_ns = if has_acted || !is_ahead {
                AHEAD_NS
            } else {
                slower.min(slowest)
            };
            // While it populated the program has come further.
            if has_acted {
                0
            } else {
                state.ahead_ns
            }
        }
        Pace::Growing => growing,
        Pace::Idle if !mind.auto.is_swept() => idle(state).min(SWEEP_NS),
        Pace::Idle => idle(state),
    };
    if pace != Pace::Ahead {
        state.ahead_ns = 0;
    }
    Ok(pause.max(floor))
}

fn conditions(mind: &Mind, state: &State, now: u64, resident: u64) -> Conditions {
    Conditions {
        now_ns: now,
        program_ns: mind.machine.program_ns(),
        resident_bytes: resident,
        faults: mind.machine.faults(),
        is_short_of_blocks: mind.machine.is_short_of_blocks(),
        left_bytes: mind.machine.left(),
        is_mapping: now.saturating_sub(state.mapping_ns) < MAPPING_NS,
        is_forked: settings::is_forked(),
        has_short_children: children::are_short(),
        is_busy: mind.machine.is_busy(now),
        is_crowded: mind.machine.is_crowded(now),
    }
}

fn act_on(mind: &mut Mind, maps: i32) {
    let Mind {
        auto,
        look,
        mappings,
        orders,
        warmth,
        ..
    } = mind;
    let mut hands = Hands {
        look,
        mappings,
        maps,
        warmth,
        touched_ns: 0,
    };
    for &order in orders.list() {
        let begun = sys::now_ns();
        let outcome = hands.carry_out(order);
        let ended = sys::now_ns();
        let took = ended.saturating_sub(begun);
        status::add(Field::ActNs, took);
        // What nobody waits for stalls nobody.
        let took = took.saturating_sub(hands.touched_ns);
        auto.done(order, outcome, took, ended);
    }
}
