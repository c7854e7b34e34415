//! Counters, and the line that a process writes when it ends, if that was asked for.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use memomania_layout::page::{Kind, BASE};
use memomania_layout::request::Reason;

use crate::start::{self, NAMES};
use crate::sys::{self, Line};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A mapping came from the anonymous pool.
    Served,
    /// A mapping was left to the kernel.
    Fall(Reason),
    /// No 2 MB page of hugetlb was to be had.
    ShortHuge,
    /// No 1 GB page of hugetlb was to be had.
    ShortGigantic,
    /// A hugetlb page was replaced by base pages.
    Demotion,
    /// It could not be.
    DemotionFailed,
    /// A fork, for which hugetlb pages were copied.
    ForkCopy,
}

const REASONS: usize = Reason::ALL.len();

impl Event {
    /// Of this kind there were not enough pages.
    pub fn short(kind: Kind) -> Self {
        match kind {
            Kind::Gigantic => Self::ShortGigantic,
            _ => Self::ShortHuge,
        }
    }

    fn counter(self) -> &'static AtomicUsize {
        static COUNTERS: [AtomicUsize; REASONS + 6] = [const { AtomicUsize::new(0) }; REASONS + 6];
        let index = match self {
            Self::Fall(reason) => reason as usize,
            Self::Served => REASONS,
            Self::ShortHuge => REASONS + 1,
            Self::ShortGigantic => REASONS + 2,
            Self::Demotion => REASONS + 3,
            Self::DemotionFailed => REASONS + 4,
            Self::ForkCopy => REASONS + 5,
        };
        &COUNTERS[index]
    }
}

/// Counts one.
pub fn count(event: Event) {
    event.counter().fetch_add(1, Ordering::Relaxed);
}

/// There was one only.
pub fn first(event: Event) -> bool {
    event.counter().load(Ordering::Relaxed) == 1
}

/// Appends this process's line to the report, if there is to be one.
pub fn write() {
    if !start::ready() {
        return;
    }
    let world = start::lock();
    let path = world.settings.report;
    if path.is_empty() {
        return;
    }
    let mut line = Line::new();
    let _ = describe(&world, &mut line);
    drop(world);
    if path == "-" {
        let _ = sys::write(2, line.bytes());
        return;
    }
    let mut name = [0; 4096];
    if path.len() < name.len() {
        name[..path.len()].copy_from_slice(path.as_bytes());
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
        if let Ok(fd) = sys::open(&name[..=path.len()], flags) {
            let _ = sys::write(fd, line.bytes());
            sys::close(fd);
        }
    }
}

fn describe(world: &start::World, line: &mut Line) -> std::fmt::Result {
    let get = |event: Event| event.counter().load(Ordering::Relaxed);
    write!(
        line,
        "{{\"schema\":1,\"kind\":\"memomania\",\"pid\":{},\"comm\":\"",
        sys::process()
    )?;
    let mut name = [0; 16];
    if let Ok(fd) = sys::open(b"/proc/self/comm\0", libc::O_RDONLY) {
        let length = sys::read(fd, &mut name).unwrap_or(0);
        sys::close(fd);
        for byte in &name[..length] {
            match byte {
                b'\n' => {}
                b'"' | b'\\' => write!(line, "\\{}", *byte as char)?,
                b' '..=b'~' => line.write_char(*byte as char)?,
                _ => line.write_char('?')?,
            }
        }
    }
    line.write_str("\",\"pools\":{")?;
    let pools = NAMES
        .iter()
        .zip(&world.pools)
        .filter_map(|(name, pool)| Some((name, pool.as_ref()?)));
    for (index, (name, pool)) in pools.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let extent = pool.extent();
        write!(
            line,
            "{comma}\"{name}\":{{\"reserved_bytes\":{},\"pages\":{{",
            extent.end - extent.start
        )?;
        let usage = pool.map.usage();
        let mut comma = "";
        for kind in Kind::ALL {
            let of = |pages: [usize; 4]| pages[kind as usize] * BASE;
            if usage.peak[kind as usize] == 0 {
                continue;
            }
            let (used, peak) = (of(usage.used), of(usage.peak));
            write!(line, "{comma}\"{kind}\":{{\"used_bytes\":{used},\"peak_bytes\":{peak}")?;
            if kind.is_hugetlb() {
                let (taken, peak) = (of(usage.live), of(usage.live_peak));
                write!(line, ",\"taken_bytes\":{taken},\"taken_peak_bytes\":{peak}")?;
            }
            line.write_char('}')?;
            comma = ",";
        }
        line.write_str("}}")?;
    }
    write!(line, "}},\"served\":{},\"left_to_the_kernel\":{{", get(Event::Served))?;
    for reason in Reason::ALL {
        let comma = if reason as usize == 0 { "" } else { "," };
        write!(line, "{comma}\"{}\":{}", reason.word(), get(Event::Fall(reason)))?;
    }
    let (huge, gigantic) = (get(Event::ShortHuge), get(Event::ShortGigantic));
    write!(
        line,
        "}},\"short\":{{\"2M\":{huge},\"1G\":{gigantic}}},\"demoted\":{}",
        get(Event::Demotion)
    )?;
    let (failed, copies) = (get(Event::DemotionFailed), get(Event::ForkCopy));
    writeln!(line, ",\"demotions_failed\":{failed},\"fork_copies\":{copies}}}")
}
