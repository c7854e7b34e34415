//! A program that is managed: it gives memory back and fills it again all the while, knows what each word must be, and counts what it gets done.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// What it is to do is in here.
const VARIABLE: &str = "MEGA_TEST_VICTIM";
const REGION: usize = 2 << 20;
const REGIONS: usize = 12;

/// The word at this place in the memory's generation.
fn word(at: usize, generation: u64) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation
}

struct Memory {
    start: *mut u64,
    generations: [u64; REGIONS],
}

impl Memory {
    /// On base pages, or with huge pages from its faults on.
    fn new(is_huge: bool) -> Self {
        let bytes = (REGIONS + 1) * REGION;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        let start = (mapped as usize).next_multiple_of(REGION) as *mut u64;
        if is_huge {
            // SAFETY: within the mapping, of which nothing is used yet.
            unsafe { libc::madvise(start.cast(), REGIONS * REGION, libc::MADV_HUGEPAGE) };
        }
        let mut memory = Self {
            start,
            generations: [0; REGIONS],
        };
        (0..REGIONS).for_each(|region| memory.fill(region));
        memory
    }

    fn words(&mut self, region: usize) -> &mut [u64] {
        // SAFETY: within the mapping, which is this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(region * REGION / 8), REGION / 8) }
    }

    /// Gives the region back and fills it anew, with base pages: the kernel's faults are huge only where it is told so.
    fn fill(&mut self, region: usize) {
        self.generations[region] += 1;
        let generation = self.generations[region];
        let words = self.words(region);
        // SAFETY: the region's own memory, of which nothing is needed any more.
        unsafe { libc::madvise(words.as_mut_ptr().cast(), REGION, libc::MADV_DONTNEED) };
        for (at, place) in words.iter_mut().enumerate() {
            *place = word(region * REGION / 8 + at, generation);
        }
    }

    fn is_right(&mut self) -> bool {
        (0..REGIONS).all(|region| {
            let generation = self.generations[region];
            let first = region * REGION / 8;
            self.words(region)
                .iter()
                .enumerate()
                .all(|(at, is)| *is == word(first + at, generation))
        })
    }
}

/// The program itself: `fill` keeps giving back and filling, `hold` only reads, `huge` reads huge pages. Answers each line with what it has done so far, or `wrong`.
#[test]
fn victim() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let mut memory = Memory::new(what == "huge");
    let fills = what == "fill";
    let (ask, asked) = channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            if ask.send(()).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    let say = |text: String| {
        // Straight to the pipe: the test harness keeps what is printed.
        let mut out = std::fs::File::from(
            std::os::fd::AsFd::as_fd(&std::io::stdout())
                .try_clone_to_owned()
                .unwrap(),
        );
        let _ = writeln!(out, "MEGA-VICTIM {text}");
    };
    say("ready".to_owned());
    let mut done = 0u64;
    loop {
        if asked
            .recv_timeout(Duration::from_millis(if fills { 5 } else { 0 }))
            .is_ok()
        {
            say(if memory.is_right() {
                done.to_string()
            } else {
                "wrong".to_owned()
            });
        }
        if fills {
            let region = done as usize % REGIONS;
            memory.fill(region);
        } else {
            let region = done as usize % REGIONS;
            assert!(
                memory
                    .words(region)
                    .iter()
                    .fold(0u64, |sum, word| sum.wrapping_add(*word))
                    != 1
            );
        }
        done += 1;
    }
}

/// One under way; killed when dropped.
pub struct Victim {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Victim {
    /// Gives back and fills all the while.
    pub fn filling() -> Self {
        Self::start("fill", |_| {})
    }

    /// Reads huge pages all the while.
    pub fn reading_huge() -> Self {
        Self::start("huge", |_| {})
    }

    /// Reads all the while.
    pub fn reading() -> Self {
        Self::start("hold", |_| {})
    }

    pub fn start(what: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "victim::victim", "--nocapture"])
            .env(VARIABLE, what);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let said = line.rsplit_once("MEGA-VICTIM ").map(|(_, said)| said.to_owned());
                if said.is_some_and(|said| send.send(said).is_err()) {
                    return;
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        let victim = Self { child, stdin, lines };
        victim.line("ready");
        victim
    }

    fn line(&self, what: &str) -> String {
        let began = Instant::now();
        loop {
            let left = super::LONG.saturating_sub(began.elapsed());
            let said = self
                .lines
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("the program does not say '{what}'"));
            // Its test's own name is printed before it begins.
            if said == what || what == "done" {
                return said;
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has got done; all of its memory is as it must be.
    #[track_caller]
    pub fn check(&mut self) -> u64 {
        writeln!(self.stdin, "?").unwrap();
        let said = self.line("done");
        said.parse().unwrap_or_else(|_| panic!("its memory is {said}"))
    }

    /// What it gets done in a second.
    pub fn speed(&mut self) -> f64 {
        let (began, had) = (Instant::now(), self.check());
        std::thread::sleep(Duration::from_secs(2));
        (self.check() - had) as f64 / began.elapsed().as_secs_f64()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
