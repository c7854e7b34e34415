//! The harness of the fuzz tests of several crates: mutations of valid inputs, drawn from a seeded generator, and what a parser takes of memory.
//!
//! On stable Rust and without coverage: it knows what inputs look like and where numbers are, and goes by luck from there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What a parser may hold at a time, in bytes.
const LIMIT: usize = 32 << 20;
/// What is not given to it at all.
const HARD_LIMIT: usize = 1 << 30;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what this thread holds.
struct Counting;

impl Counting {
    /// Whether so much more may be had.
    fn more(bytes: usize) -> bool {
        let held = HELD.with(Cell::get).saturating_add(bytes);
        if held > HARD_LIMIT {
            let seed = SEED.with(Cell::get);
            let _ = writeln!(std::io::stderr(), "seed {seed} asks for {bytes} bytes at once");
            return false;
        }
        HELD.with(|h| h.set(held));
        PEAK.with(|p| p.set(p.get().max(held)));
        true
    }

    fn less(bytes: usize) {
        HELD.with(|h| h.set(h.get().saturating_sub(bytes)));
    }
}

// SAFETY: every call is passed on to the system's allocator as it came, or refused by a null pointer, which the trait allows. What is
// counted lies in thread-locals without destructors or lazy values, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::more(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Self::less(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if new_size > layout.size() && !Self::more(new_size - layout.size()) {
            return std::ptr::null_mut();
        }
        Self::less(layout.size().saturating_sub(new_size));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A generator.
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// The one of this number.
    pub fn of(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Below `n`; 0 where that is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// Numbers at which parsers go wrong.
pub const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    127,
    128,
    255,
    511,
    513,
    65_535,
    1 << 20,
    (1 << 31) - 1,
    u32::MAX as u64,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// Makes something that is nearly like one of `seeds`.
pub fn mutate(dice: &mut Dice, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = dice.pick(seeds).clone();
    for _ in 0..1 + dice.below(6) {
        let at = dice.below(input.len() + 1);
        let end = at + dice.below((input.len() - at).min(40) + 1);
        match dice.below(12) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.below(256) as u8,
            2 => input.truncate(at),
            3 => drop(input.drain(at..end)),
            4 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            5 => {
                let other = dice.pick(seeds);
                let from = dice.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => {
                // A number as bytes.
                let bytes = dice.pick(&NUMBERS).to_le_bytes();
                let n = *dice.pick(&[1, 2, 4, 8]);
                for (place, byte) in input[at..].iter_mut().zip(&bytes[..n]) {
                    *place = *byte;
                }
            }
            7 | 8 => {
                // A number as text.
                let is_digit = |b: &u8| b.is_ascii_digit();
                let Some(start) = input[at..].iter().position(is_digit).map(|i| at + i) else {
                    continue;
                };
                let length = input[start..].iter().take_while(|b| is_digit(b)).count();
                let number = match dice.below(4) {
                    0 => format!("-{}", dice.pick(&NUMBERS)),
                    1 => format!("{}.5e{}", dice.below(10), dice.below(400)),
                    _ => dice.pick(&NUMBERS).to_string(),
                };
                input.splice(start..start + length, number.into_bytes());
            }
            9 if !words.is_empty() => {
                input.splice(at..end, dice.pick(words).bytes());
            }
            10 => {
                // A line to another place.
                let lines: Vec<&[u8]> = input.split_inclusive(|b| *b == b'\n').collect();
                let (from, to) = (dice.below(lines.len()), dice.below(lines.len()));
                let mut lines = lines.clone();
                if let (Some(line), true) = (lines.get(from).copied(), to <= lines.len()) {
                    lines.insert(to, line);
                }
                input = lines.concat();
            }
            _ => {
                let many = 1 << dice.below(12);
                let byte = *dice.pick(b"\0\xff\x80 0[{\"\n");
                input.splice(at..at, std::iter::repeat_n(byte, many));
            }
        }
    }
    input
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Draws inputs and gives them to the parser until the time is over.
pub fn fuzz(name: &str, make: impl Fn(&mut Dice) -> Vec<u8>, parse: impl Fn(&[u8])) {
    let seconds = Duration::from_secs(from_environment("FUZZ_SECONDS").unwrap_or(3));
    let first = from_environment("FUZZ_SEED").unwrap_or(1);
    let begun = Instant::now();
    let mut seed = first;
    loop {
        let input = make(&mut Dice::of(seed));
        SEED.with(|s| s.set(seed));
        let before = HELD.with(Cell::get);
        PEAK.with(|p| p.set(before));
        let ended = catch_unwind(AssertUnwindSafe(|| parse(&input)));
        let peak = PEAK.with(Cell::get).saturating_sub(before);
        if ended.is_err() || peak > LIMIT {
            let path = std::env::temp_dir().join(format!("fuzz-{name}-{seed}"));
            let _ = std::fs::write(&path, &input);
            let what = if ended.is_err() {
                "panics"
            } else {
                "takes too much memory"
            };
            panic!(
                "{name}: FUZZ_SEED={seed} {what} ({peak} bytes); its input is {}",
                path.display()
            );
        }
        seed += 1;
        if begun.elapsed() >= seconds {
            break;
        }
    }
    eprintln!("{name}: {} inputs in {:?}", seed - first, begun.elapsed());
}
