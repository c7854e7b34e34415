//! The same random sequence of calls of the mmap family in two processes, one of them under the library: results, error numbers, contents and
//! the permissions in /proc/self/maps are the same, but for addresses.
//!
//! A million calls in all, some 50 s of one processor. `MEMOMANIA_CALLS` is how many under each layout, `MEMOMANIA_SEED` chooses others;
//! `MEMOMANIA_CHECK_ALL=1` to look at all memory after each call.

mod support;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::process::Output;
use std::sync::OnceLock;

use memomania_layout::settings::Partial;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use support::{alone, ourselves, part, settings, under, HugePages};

const PAGE: usize = 4096;
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const MEMORY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Regions at most.
const MOST: usize = 40;

fn calls() -> u64 {
    std::env::var("MEMOMANIA_CALLS")
        .ok()
        .map_or(167_000, |n| n.parse().unwrap())
}

fn seed() -> u64 {
    std::env::var("MEMOMANIA_SEED").ok().map_or(1, |n| n.parse().unwrap())
}

/// What a run noted, a line for each call; without layouts, of a run without the library.
fn play(fill: bool, layouts: Option<&Partial>) -> (String, Output) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = ourselves("plays_its_part", "fuzz");
    command.env("MEMOMANIA_OUT", file.path());
    if fill {
        command.env("MEMOMANIA_FILL", "1");
    }
    if let Some(layouts) = layouts {
        under(&mut command, &layouts.settings());
    }
    let output = command.output().unwrap();
    (std::fs::read_to_string(file.path()).unwrap(), output)
}

fn compare(heap: &str, anon: &str) {
    // One run without the library for all layouts.
    static PLAIN: OnceLock<String> = OnceLock::new();
    let plain = PLAIN.get_or_init(|| play(false, None).0);
    compare_with(plain, false, &settings(heap, anon, &[]));
}

fn compare_with(plain: &str, fill: bool, layouts: &Partial) {
    assert_eq!(
        plain.lines().count() as u64,
        calls(),
        "the run without the library ended early"
    );
    let (ours, Output { status, stderr, .. }) = play(fill, Some(layouts));
    let mut all = ours.lines();
    let mut last = std::collections::VecDeque::new();
    for (index, expected) in plain.lines().enumerate() {
        let got = all.next().unwrap_or("(nothing: it ended)");
        last.push_back(expected);
        if last.len() > 12 {
            last.pop_front();
        }
        assert!(
            expected == got,
            "{:?}, {:?}, seed {}, line {index}: the kernel and the library differ\nbefore:  {last:#?}\n\
             kernel:  {expected}\nlibrary: {got}\n{status}\n{}",
            layouts.heap,
            layouts.anon,
            seed(),
            String::from_utf8_lossy(&stderr)
        );
    }
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
}

#[test]
fn base_pages_behave_as_the_kernels() {
    compare("4K", "4K");
}

#[test]
fn transparent_huge_pages_behave_as_the_kernels() {
    compare("2M:thp", "2M:thp");
}

#[test]
fn hugetlb_pages_behave_as_the_kernels() {
    let _alone = alone();
    let Some(_pages) = HugePages::reserve(128) else { return };
    compare("2M", "2M");
}

#[test]
fn mixtures_behave_as_the_kernels() {
    let _alone = alone();
    let Some(_pages) = HugePages::reserve(64) else { return };
    compare("2M:thp+4M,4K", "4K+2M,2M+4M,2M:thp+4M,2M@12M+8M");
}

#[test]
fn hugetlb_pages_that_are_short_behave_as_the_kernels() {
    let _alone = alone();
    let Some(_pages) = HugePages::reserve(4) else { return };
    compare("2M", "2M");
}

#[test]
fn a_pool_that_is_nearly_full_behaves_as_the_kernels() {
    let layouts = settings("4K", "4K+8M,2M:thp", &[("ANON_SIZE", "1G")]);
    compare_with(&play(true, None).0, true, &layouts);
}

#[test]
fn plays_its_part() {
    if part().as_deref() == Some("fuzz") {
        Fuzz::new().run();
    }
}

/// Memory that the program made by one call and knows page by page.
struct Region {
    at: usize,
    /// Protection of each page.
    pages: Vec<i32>,
    /// The kernel may see it as several mappings.
    split: bool,
}

struct Fuzz {
    random: Pcg64Mcg,
    out: BufWriter<File>,
    line: String,
    regions: Vec<Region>,
    file: File,
    pipe: [i32; 2],
    stamp: u64,
    all: bool,
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Fuzz {
    fn new() -> Self {
        let out = File::create(std::env::var_os("MEMOMANIA_OUT").unwrap()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..64 * PAGE).map(|at| (at / 7) as u8).collect();
        file.write_all(&content).unwrap();
        let mut pipe = [0; 2];
        // SAFETY: room for two numbers.
        let made = unsafe { libc::pipe(pipe.as_mut_ptr()) };
        assert_eq!(made, 0);
        Self {
            random: Pcg64Mcg::seed_from_u64(seed()),
            out: BufWriter::new(out),
            line: String::new(),
            regions: Vec::new(),
            file,
            pipe,
            stamp: 0,
            all: std::env::var_os("MEMOMANIA_CHECK_ALL").is_some(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn protection(&mut self) -> i32 {
        // Not execute alone: whether that can be read depends on the processor.
        let all = [
            RW,
            RW,
            RW,
            RW,
            RW,
            libc::PROT_READ,
            libc::PROT_NONE,
            RW | libc::PROT_EXEC,
            libc::PROT_READ | libc::PROT_EXEC,
        ];
        all[self.below(all.len())]
    }

    fn length(&mut self) -> usize {
        match self.below(10) {
            0 => 1 + self.below(1500),
            1 => 512 * (1 + self.below(3)),
            _ => 1 + self.below(24),
        }
    }

    fn run(&mut self) {
        if std::env::var_os("MEMOMANIA_FILL").is_some() {
            // Of a pool of 1 GB, a few megabytes are left, in places.
            for _ in 0..126 {
                self.mmap(0, 8 << 20, RW, MEMORY, -1, 0);
            }
            self.line.clear();
        }
        for call in 0..calls() {
            self.line.clear();
            write!(self.line, "{call} ").unwrap();
            if self.regions.len() < 3 {
                self.map();
            } else {
                match self.below(100) {
                    0..=21 if self.regions.len() < MOST => self.map(),
                    0..=34 => self.unmap(),
                    35..=52 => self.protect(),
                    53..=64 => self.advise(),
                    65..=74 => self.remap(),
                    75..=81 => self.map_over(),
                    82..=84 => self.map_bad(),
                    85..=86 => self.move_break(),
                    87..=89 => self.map_again(),
                    90 if self.one_in(10) => self.fork(),
                    _ => self.touch(),
                }
            }
            // To find out which call it was that another one shows.
            if self.all {
                (0..self.regions.len()).for_each(|index| self.check(index));
            }
            if call % 64 == 0 {
                (0..self.regions.len()).for_each(|index| self.check(index));
                self.look_at_maps();
            }
            writeln!(self.out, "{}", self.line).unwrap();
        }
        self.out.flush().unwrap();
    }

    fn note(&mut self, text: std::fmt::Arguments<'_>) {
        self.line.write_fmt(text).unwrap();
    }

    /// Notes how a call ended that answers 0 or -1.
    fn status(&mut self, name: &str, answer: i32) -> bool {
        let errno = errno();
        match answer {
            0 => self.note(format_args!("{name}=0 ")),
            _ => self.note(format_args!("{name}=E{errno} ")),
        }
        answer == 0
    }

    /// Notes how a call ended that answers an address.
    fn address(&mut self, name: &str, answer: *mut libc::c_void) -> Option<usize> {
        let errno = errno();
        if answer == libc::MAP_FAILED {
            self.note(format_args!("{name}=E{errno} "));
            return None;
        }
        self.note(format_args!("{name}=ok{} ", answer as usize % PAGE));
        Some(answer as usize)
    }

    fn mmap(&mut self, at: usize, bytes: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> Option<usize> {
        // SAFETY: at an address of the kernel's choice, or over what is ours.
        let answer = unsafe { libc::mmap(at as *mut _, bytes, protection, flags, fd, offset) };
        self.address("mmap", answer)
    }

    fn add(&mut self, at: usize, pages: usize, protection: i32) {
        let region = Region {
            at,
            pages: vec![protection; pages],
            split: false,
        };
        self.regions.push(region);
        self.check(self.regions.len() - 1);
    }

    /// Notes what a region holds: as much as can be read, and of large ones some pages.
    fn check(&mut self, index: usize) {
        const MOST: usize = 48;
        let region = &self.regions[index];
        let mut sum = 0u64;
        let step = region.pages.len().div_ceil(MOST);
        let first = self.stamp as usize % step;
        for (page, protection) in region.pages.iter().enumerate().skip(first).step_by(step) {
            if protection & libc::PROT_READ != 0 {
                let at = region.at + page * PAGE;
                for word in [at, at + 2048, at + PAGE - 8] {
                    // SAFETY: the region is ours, and by what we know it can be read.
                    let value = unsafe { std::ptr::read_volatile(word as *const u64) };
                    sum = sum.rotate_left(5).wrapping_mul(0x9e37_79b9).wrapping_add(value);
                }
            }
        }
        let pages = region.pages.len();
        self.note(format_args!("#{index}/{pages}:{sum:x} "));
    }

    fn write_stamp(&mut self, at: usize) {
        self.stamp += 1;
        // SAFETY: the page is ours, and by what we know it can be written.
        unsafe {
            std::ptr::write_volatile(at as *mut u64, self.stamp);
            std::ptr::write_volatile((at + PAGE - 8) as *mut u64, self.stamp.wrapping_mul(77));
        }
    }

    fn map(&mut self) {
        let pages = self.length();
        let odd = self.below(PAGE);
        let protection = self.protection();
        let extra = [
            0,
            0,
            0,
            0,
            libc::MAP_NORESERVE,
            libc::MAP_POPULATE,
            libc::MAP_STACK,
            libc::MAP_NORESERVE,
        ];
        let flags = MEMORY | extra[self.below(extra.len())];
        if let Some(at) = self.mmap(0, pages * PAGE - odd, protection, flags, -1, 0) {
            self.add(at, pages, protection);
            let index = self.regions.len() - 1;
            self.touch_region(index);
        }
    }

    fn map_bad(&mut self) {
        let fd = self.file.as_raw_fd();
        match self.below(8) {
            0 => self.mmap(0, 0, RW, MEMORY, -1, 0),
            1 => self.mmap(0, PAGE, RW, MEMORY, -1, 1),
            2 => self.mmap(0, PAGE, RW, libc::MAP_ANONYMOUS, -1, 0),
            3 => self.mmap(0, PAGE, RW, libc::MAP_PRIVATE, -1, 0),
            4 => self.mmap(0, usize::MAX - 5 * PAGE, RW, MEMORY, -1, 0),
            5 => self.mmap(0, 1 << 46, RW, MEMORY, -1, 0),
            6 => self.mmap(1, PAGE, RW, MEMORY | libc::MAP_FIXED, -1, 0),
            _ => self.mmap(0, PAGE, RW, libc::MAP_SHARED, fd, 3),
        };
    }

    fn pick(&mut self) -> usize {
        let count = self.regions.len();
        self.below(count)
    }

    /// A part of a region: first page and page after the last.
    fn part(&mut self, index: usize) -> (usize, usize) {
        let pages = self.regions[index].pages.len();
        if self.one_in(4) {
            return (0, pages);
        }
        let start = self.below(pages);
        let most = (pages - start).min(if self.one_in(3) { 1024 } else { 6 });
        (start, start + 1 + self.below(most))
    }

    fn unmap(&mut self) {
        let index = self.pick();
        let (start, end) = self.part(index);
        let at = self.regions[index].at;
        let bytes = (end - start) * PAGE - self.below(PAGE);
        if self.one_in(20) {
            // SAFETY: refused.
            let answer = unsafe { libc::munmap((at + 1) as *mut _, PAGE) };
            self.status("munmap", answer);
            // SAFETY: refused.
            let answer = unsafe { libc::munmap(at as *mut _, 0) };
            self.status("munmap", answer);
        }
        // SAFETY: a part of our own memory.
        let answer = unsafe { libc::munmap((at + start * PAGE) as *mut _, bytes) };
        if !self.status("munmap", answer) {
            return;
        }
        let whole = self.regions[index].pages.len();
        if self.one_in(2) && start > 0 && end < whole {
            // There is a hole for as long as nothing is mapped, and nothing is until we have done.
            let protection = self.protection();
            // SAFETY: our own memory and a hole.
            let answer = unsafe { libc::mprotect(at as *mut _, whole * PAGE, protection) };
            let error = errno();
            self.note(format_args!("hole:{answer},{error} "));
            self.regions[index].pages[..start].fill(protection);
            // SAFETY: as above.
            let answer = unsafe { libc::madvise(at as *mut _, whole * PAGE, libc::MADV_WILLNEED) };
            self.status("madvise", answer);
            // SAFETY: nothing is there.
            let answer = unsafe { libc::mremap((at + start * PAGE) as *mut _, PAGE, 2 * PAGE, libc::MREMAP_MAYMOVE) };
            self.address("mremap", answer);
            // SAFETY: nothing is there.
            let answer = unsafe { libc::munmap((at + start * PAGE) as *mut _, PAGE) };
            self.status("munmap", answer);
        }
        let region = self.regions.swap_remove(index);
        for (from, to) in [(0, start), (end, whole)] {
            if from < to {
                self.regions.push(Region {
                    at: at + from * PAGE,
                    pages: region.pages[from..to].to_vec(),
                    split: region.split,
                });
                self.check(self.regions.len() - 1);
            }
        }
    }

    fn protect(&mut self) {
        let index = self.pick();
        let (start, end) = self.part(index);
        let protection = self.protection();
        let at = self.regions[index].at + start * PAGE;
        let (at, bytes, protection) = match self.below(30) {
            0 => (at + 8, PAGE, protection),
            1 => (at, 0, protection),
            2 => (at, PAGE, 0x40),
            _ => (at, (end - start) * PAGE - self.below(PAGE), protection),
        };
        // SAFETY: a part of our own memory.
        let answer = unsafe { libc::mprotect(at as *mut _, bytes, protection) };
        if self.status("mprotect", answer) && bytes > 0 {
            let region = &mut self.regions[index];
            region.pages[start..end].fill(protection);
            region.split |= end - start < region.pages.len();
        }
        self.check(index);
    }

    fn advise(&mut self) {
        let index = self.pick();
        let (start, end) = self.part(index);
        let all = [
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_WILLNEED,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_COLD,
            libc::MADV_POPULATE_READ,
            libc::MADV_POPULATE_WRITE,
            libc::MADV_DONTFORK,
            libc::MADV_DOFORK,
            libc::MADV_SEQUENTIAL,
            12345,
        ];
        let advice = all[self.below(all.len())];
        let mut at = self.regions[index].at + start * PAGE;
        if self.one_in(30) {
            at += 1;
        }
        // SAFETY: a part of our own memory; what it holds is not relied on.
        let answer = unsafe { libc::madvise(at as *mut _, (end - start) * PAGE, advice) };
        self.status("madvise", answer);
        self.regions[index].split = true;
        self.check(index);
    }

    fn remap(&mut self) {
        let index = self.pick();
        let pages = self.regions[index].pages.len();
        let at = self.regions[index].at;
        let mremap = |this: &mut Self, at: usize, old: usize, new: usize, flags: i32, to: usize| {
            // SAFETY: of our own memory, to our own memory or where there is none.
            let answer = unsafe { libc::mremap(at as *mut _, old, new, flags, to as *mut libc::c_void) };
            this.address("mremap", answer)
        };
        match self.below(12) {
            0 => {
                mremap(self, at + 16, PAGE, PAGE, libc::MREMAP_MAYMOVE, 0);
                mremap(self, at, PAGE, 0, libc::MREMAP_MAYMOVE, 0);
                mremap(self, at, PAGE, PAGE, 0x80, 0);
                mremap(self, at, 0, PAGE, libc::MREMAP_MAYMOVE, 0);
                mremap(self, at, PAGE, PAGE, libc::MREMAP_FIXED, at + PAGE);
                mremap(
                    self,
                    at,
                    2 * PAGE,
                    2 * PAGE,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    at + PAGE,
                );
            }
            1..=3 => {
                let left = 1 + self.below(pages);
                let new = left * PAGE - self.below(PAGE);
                mremap(self, at, pages * PAGE, new, libc::MREMAP_MAYMOVE, 0);
                self.regions[index].pages.truncate(left);
            }
            // Only of what the kernel surely sees as one.
            _ if self.regions[index].split => {}
            4..=7 => {
                let more = self.length();
                let new = (pages + more) * PAGE;
                if let Some(at) = mremap(self, at, pages * PAGE, new, libc::MREMAP_MAYMOVE, 0) {
                    let protection = self.regions[index].pages[0];
                    let region = &mut self.regions[index];
                    region.at = at;
                    region.pages.resize(pages + more, protection);
                }
            }
            8..=9 => {
                // Onto other memory, as large as needed.
                let new = 1 + self.below(2 * pages);
                let protection = self.protection();
                let Some(to) = self.mmap(0, new * PAGE, protection, MEMORY, -1, 0) else {
                    return;
                };
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                if let Some(at) = mremap(self, at, pages * PAGE, new * PAGE, flags, to) {
                    let protection = self.regions[index].pages[0];
                    self.note(format_args!("there={} ", at == to));
                    self.regions[index].at = at;
                    self.regions[index].pages.resize(new, protection);
                } else {
                    self.regions.push(Region {
                        at: to,
                        pages: vec![protection; new],
                        split: true,
                    });
                }
            }
            _ => {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
                if let Some(new) = mremap(self, at, pages * PAGE, pages * PAGE, flags, 0) {
                    let protection = self.regions[index].pages[0];
                    self.check(index);
                    self.add(new, pages, protection);
                }
            }
        }
        self.check(index);
    }

    fn map_over(&mut self) {
        let index = self.pick();
        let (start, end) = self.part(index);
        let at = self.regions[index].at + start * PAGE;
        let bytes = (end - start) * PAGE;
        let protection = self.protection();
        let fd = self.file.as_raw_fd();
        let kind = self.below(12);
        let (flags, fd, protection) = match kind {
            0 | 1 => (libc::MAP_PRIVATE | libc::MAP_FIXED, fd, protection),
            2 => (libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED, -1, protection),
            3 => (MEMORY | libc::MAP_FIXED_NOREPLACE, -1, protection),
            4 => (MEMORY | libc::MAP_FIXED | libc::MAP_NORESERVE, -1, libc::PROT_NONE),
            5 => (libc::MAP_PRIVATE | libc::MAP_FIXED, 12345, protection),
            _ => (MEMORY | libc::MAP_FIXED, -1, protection),
        };
        if fd == self.file.as_raw_fd() && end - start > 64 {
            return;
        }
        let answer = self.mmap(at, bytes, protection, flags, fd, 0);
        if answer.is_some() {
            let region = &mut self.regions[index];
            region.pages[start..end].fill(protection);
            region.split = true;
        }
        self.check(index);
    }

    /// What was unmapped can be had again at the same address.
    fn map_again(&mut self) {
        let index = self.pick();
        let region = self.regions.swap_remove(index);
        let bytes = region.pages.len() * PAGE;
        // SAFETY: our own memory.
        let answer = unsafe { libc::munmap(region.at as *mut _, bytes) };
        let noreplace = if self.one_in(2) { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let protection = self.protection();
        if self.status("munmap", answer) {
            if let Some(at) = self.mmap(region.at, bytes, protection, MEMORY | noreplace, -1, 0) {
                self.note(format_args!("same={} ", at == region.at));
                self.add(at, region.pages.len(), protection);
            }
        }
    }

    fn touch(&mut self) {
        let index = self.pick();
        self.touch_region(index);
        self.check(index);
        // The kernel's own accesses: what may be read, and what may be written.
        let page = self.below(self.regions[index].pages.len());
        let at = (self.regions[index].at + page * PAGE + 100) as *mut libc::c_void;
        // SAFETY: the kernel checks the addresses.
        let written = unsafe { libc::write(self.pipe[1], at, 16) };
        let error = errno();
        self.note(format_args!("write:{written},{} ", if written < 0 { error } else { 0 }));
        if written < 0 {
            // SAFETY: as above.
            unsafe { libc::write(self.pipe[1], [7u8; 16].as_ptr().cast(), 16) };
        }
        // SAFETY: as above; nothing of Rust's is there.
        let read = unsafe { libc::read(self.pipe[0], at, 16) };
        let error = errno();
        self.note(format_args!("read:{read},{} ", if read < 0 { error } else { 0 }));
        if read < 0 {
            let mut drain = [0u8; 16];
            // SAFETY: as above.
            unsafe { libc::read(self.pipe[0], drain.as_mut_ptr().cast(), 16) };
        }
    }

    fn touch_region(&mut self, index: usize) {
        for _ in 0..6 {
            let page = self.below(self.regions[index].pages.len());
            if self.regions[index].pages[page] & RW == RW {
                self.write_stamp(self.regions[index].at + page * PAGE);
            }
        }
    }

    fn move_break(&mut self) {
        let bytes = (1 + self.below(3 * 1024 * 1024)) as isize;
        // SAFETY: nobody allocates in between.
        unsafe {
            let old = libc::sbrk(bytes) as usize;
            if old != usize::MAX {
                let same = libc::sbrk(0) as usize == old + bytes as usize;
                // The rest of the last page may have been used before.
                let first = old.next_multiple_of(PAGE);
                let word = if first + 8 <= old + bytes as usize {
                    std::ptr::read_volatile(first as *const u64)
                } else {
                    0
                };
                if first + 8 <= old + bytes as usize {
                    std::ptr::write_volatile(first as *mut u64, 9);
                }
                let back = libc::sbrk(-bytes) as usize == old + bytes as usize;
                let zero = libc::sbrk(0) as usize == old;
                let brk = libc::brk(old as *mut _);
                self.note(format_args!("sbrk:{same},{word},{back},{zero},{brk} "));
            }
            let answer = libc::sbrk(isize::MAX) as isize;
            let error = errno();
            self.note(format_args!("sbrk:{answer},{error} "));
        }
    }

    /// A child sees the same, and what it writes stays its own.
    fn fork(&mut self) {
        self.out.flush().unwrap();
        // SAFETY: there is one thread, and the child only reads, writes and ends.
        unsafe {
            // Memory that MADV_DONTFORK took out is not there in the child.
            for region in &self.regions {
                libc::madvise(region.at as *mut _, region.pages.len() * PAGE, libc::MADV_DOFORK);
            }
            let child = libc::fork();
            if child == 0 {
                self.line.clear();
                for index in 0..self.regions.len() {
                    self.check(index);
                    self.touch_region(index);
                    self.check(index);
                }
                let sum = self
                    .line
                    .bytes()
                    .fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
                libc::_exit((sum % 251) as i32);
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            self.note(format_args!("fork:{status:x} "));
        }
        // As the child's own, whose choices were not ours.
        self.random = Pcg64Mcg::seed_from_u64(self.random.next_u64());
        for index in 0..self.regions.len() {
            self.check(index);
        }
    }

    /// Notes the permissions of every page that is ours.
    fn look_at_maps(&mut self) {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut maps: Vec<(usize, usize, &str)> = Vec::new();
        for line in text.lines() {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            maps.push((address(start), address(end), &rest[..4]));
        }
        let mut all = 0u64;
        let mut wrong = String::new();
        for (index, region) in self.regions.iter().enumerate() {
            for (page, protection) in region.pages.iter().enumerate() {
                let at = region.at + page * PAGE;
                let next = maps.partition_point(|(start, ..)| *start <= at);
                let mapping = maps[..next].last().filter(|(_, end, _)| at < *end);
                let permissions = mapping.map_or("none", |(.., permissions)| *permissions);
                let bit = |c, bit| if permissions.contains(c) { bit } else { 0 };
                let known = bit('r', 1) | bit('w', 2) | bit('x', 4);
                if known != *protection && wrong.len() < 200 {
                    write!(wrong, "#{index}+{page}:{permissions}for{protection} ").unwrap();
                }
                all = all
                    .rotate_left(3)
                    .wrapping_mul(0x9e37_79b9)
                    .wrapping_add(permissions.bytes().map(u64::from).sum());
            }
        }
        self.note(format_args!("maps:{all:x} {wrong}"));
    }
}
