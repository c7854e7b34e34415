//! Memory of a program over time: a thread samples it once a second, more often at first, cheaply (page tables by the scanner, no smaps).

use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mega_linux::inspect::usage::{self, UsageOptions};
use mega_linux::proc::{buddyinfo, maps, smaps, status, ProcRoot};
use mega_linux::process::family::Family;
use mega_linux::scan::partly::Partly;
use mega_linux::scan::{choose, Preference, ScanRange, Scanner, REGION_BYTES};

use crate::prepare::group::Account;
use crate::result::Series;

/// Time between samples.
const EVERY: Duration = Duration::from_secs(1);

/// Time between samples at the start: a program may last for less than a second.
const FIRST: Duration = Duration::from_millis(100);

/// hugetlb's larger pages.
const GIGANTIC_BYTES: u64 = 1 << 30;

/// Time between samples, by time since the first process.
fn pause(since: Duration) -> Duration {
    (since / 8).clamp(FIRST, EVERY)
}

/// Memory of all processes of a program at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident, with hugetlb pages. Shared pages count in each process.
    pub rss_bytes: u64,
    /// What its control group counts ([`Account::taken_bytes`]), and hugetlb pages. Without a group: resident, and what is
    /// unmapped of huge pages that are whole still.
    pub taken_bytes: u64,
    /// Proportional set size.
    pub pss_bytes: u64,
    /// Of the resident memory, in huge pages, transparent or hugetlb.
    pub huge_bytes: u64,
    /// In hugetlb pages, by the page tables.
    pub hugetlb_bytes: u64,
    /// Of these, in pages of 1 GB.
    pub gigantic_bytes: u64,
    /// Zero-filled base pages inside huge pages; none where contents cannot be read.
    pub waste_bytes: Option<u64>,
}

enum Order {
    Process(u32),
    Figure(String, f64),
    MemoryNow(Sender<Memory>),
}

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub struct Sampler {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Series>>,
}

impl Sampler {
    /// Starts it, on this processor.
    #[must_use]
    pub fn start(root: &ProcRoot, account: Option<Account>, cpu: Option<usize>) -> Self {
        let (orders, receive) = channel();
        let root = root.clone();
        let thread = std::thread::spawn(move || {
            if let Some(cpu) = cpu {
                let _ = crate::memory::pin_to_cpu(cpu);
            }
            Looking::new(root, account).run(&receive)
        });
        Self {
            orders: Some(orders),
            thread: Some(thread),
        }
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }

    /// Adds this process and its children.
    pub fn process(&self, pid: i32) {
        self.order(Order::Process(pid as u32));
    }

    /// A figure of the program's own, for the series.
    pub fn figure(&self, name: &str, value: f64) {
        self.order(Order::Figure(name.to_string(), value));
    }

    /// Takes a detailed sample now, with waste and PSS. None if the thread has ended.
    #[must_use]
    pub fn memory_now(&self) -> Option<Memory> {
        let (answer, answered) = channel();
        self.order(Order::MemoryNow(answer));
        answered.recv().ok()
    }

    /// Ends it and returns the samples.
    #[must_use]
    pub fn finish(mut self) -> Series {
        self.orders = None;
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Looking {
    root: ProcRoot,
    account: Option<Account>,
    scanner: Option<Box<dyn Scanner>>,
    partly: Partly,
    family: Family,
    began: Instant,
    series: Series,
    /// The program's own figures since the last sample: name, sum, number.
    figures: Vec<(String, f64, f64)>,
}

impl Looking {
    fn new(root: ProcRoot, account: Option<Account>) -> Self {
        Self {
            root,
            account,
            scanner: choose(Preference::Best).ok().map(|(scanner, _)| scanner),
            partly: Partly::new(),
            family: Family::default(),
            began: Instant::now(),
            series: Series::default(),
            figures: Vec::new(),
        }
    }

    fn run(mut self, orders: &Receiver<Order>) -> Series {
        let mut first = Instant::now();
        let mut next = first + EVERY;
        loop {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Order::Process(pid)) => {
                    self.family.add(pid);
                    first = Instant::now();
                    next = next.min(first + FIRST);
                }
                Ok(Order::Figure(name, value)) => self.add_figure(name, value),
                Ok(Order::MemoryNow(answer)) => {
                    let _ = answer.send(self.closely());
                }
                Err(RecvTimeoutError::Disconnected) => return self.series,
                Err(RecvTimeoutError::Timeout) => {
                    self.sample();
                    // A late sample does not speed up the next ones.
                    let pause = pause(first.elapsed());
                    next = (next + pause).max(Instant::now() + pause / 2);
                }
            }
        }
    }

    fn add_figure(&mut self, name: String, value: f64) {
        match self.figures.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, sum, count)) => {
                *sum += value;
                *count += 1.0;
            }
            None => self.figures.push((name, value, 1.0)),
        }
    }

    fn pids(&mut self) -> Vec<u32> {
        let _ = self.family.look(&self.root);
        self.family.members().map(|member| member.pid).collect()
    }

    fn sample(&mut self) {
        let pids = self.pids();
        let mut row: Vec<(String, f64)> = Vec::new();
        if !pids.is_empty() {
            let (mut rss, mut huge, mut kept, mut hugetlb_bytes) = (0, 0, 0, 0);
            for pid in pids {
                let Ok(status) = status::read(&self.root, pid) else {
                    continue;
                };
                // The kernel does not count hugetlb pages as resident.
                let hugetlb = status.memory.hugetlb_bytes.unwrap_or(0);
                hugetlb_bytes += hugetlb;
                rss += status.memory.rss_bytes.unwrap_or(0) + hugetlb;
                let in_regions = self.in_regions(pid);
                huge += in_regions.0 + hugetlb;
                kept += in_regions.1;
            }
            row.push(("rss_bytes".to_string(), rss as f64));
            let taken = self.counted().map_or(rss + kept, |counted| counted + hugetlb_bytes);
            row.push(("taken_bytes".to_string(), taken as f64));
            row.push(("huge_bytes".to_string(), huge as f64));
        }
        if let Ok(free) = buddyinfo::read(&self.root) {
            row.push(("free_blocks".to_string(), free.free_blocks().0 as f64));
        }
        row.extend(self.figures.drain(..).map(|(name, sum, count)| (name, sum / count)));
        self.series.seconds.push(self.began.elapsed().as_secs_f64());
        let rows = self.series.seconds.len();
        for (name, value) in row {
            let column = self.series.columns.entry(name).or_default();
            column.resize(rows - 1, None);
            column.push(Some(value));
        }
        for column in self.series.columns.values_mut() {
            column.resize(rows, None);
        }
    }

    fn counted(&self) -> Option<u64> {
        self.account.as_ref().and_then(Account::taken_bytes)
    }

    /// Memory in transparent huge pages, by page tables, and what is unmapped of others that are whole still. A process that is ending has none. Reserved address space, of which there may
    /// be terabytes, is skipped.
    fn in_regions(&mut self, pid: u32) -> (u64, u64) {
        let (Some(scanner), Ok(mappings)) = (self.scanner.as_mut(), maps::read(&self.root, pid)) else {
            return (0, 0);
        };
        let whole = |start: u64, end: u64| (start.next_multiple_of(REGION_BYTES), end / REGION_BYTES * REGION_BYTES);
        let ranges: Vec<ScanRange> = mappings
            .iter()
            .filter(|mapping| mapping.inode == 0 && mapping.read)
            .map(|mapping| whole(mapping.start, mapping.end))
            .filter(|(start, end)| start < end)
            .map(|(start, end)| ScanRange {
                start,
                end,
                young: false,
            })
            .collect();
        let mut regions = Vec::new();
        if scanner.scan(pid as i32, &ranges, &mut regions).is_err() {
            return (0, 0);
        }
        let huge = regions.iter().filter(|region| region.is_huge()).count() as u64;
        (huge * REGION_BYTES, self.partly.kept_bytes(pid, &regions))
    }

    /// Bytes in hugetlb pages, and of these in pages of 1 GB. Walks the page tables only of a process that has some.
    fn hugetlb(&self, pid: u32) -> [u64; 2] {
        let has_some = status::read(&self.root, pid)
            .is_ok_and(|status| status.memory.hugetlb_bytes.is_some_and(|bytes| bytes > 0));
        let mappings = has_some.then(|| smaps::read(&self.root, pid).ok()).flatten();
        mappings.into_iter().flatten().fold([0, 0], |[all, gigantic], entry| {
            let usage = &entry.usage;
            let bytes = usage.private_hugetlb_bytes.unwrap_or(0) + usage.shared_hugetlb_bytes.unwrap_or(0);
            let is_gigantic = usage.kernel_page_bytes == Some(GIGANTIC_BYTES);
            [all + bytes, gigantic + if is_gigantic { bytes } else { 0 }]
        })
    }

    fn closely(&mut self) -> Memory {
        let mut all = Memory::default();
        for pid in self.pids() {
            let pss = smaps::read_rollup(&self.root, pid)
                .ok()
                .and_then(|usage| usage.pss_bytes);
            all.pss_bytes += pss.unwrap_or(0);
            let [hugetlb, gigantic] = self.hugetlb(pid);
            all.hugetlb_bytes += hugetlb;
            all.gigantic_bytes += gigantic;
            all.rss_bytes += hugetlb;
            all.taken_bytes += hugetlb;
            all.huge_bytes += hugetlb;
            let Some(scanner) = self.scanner.as_mut() else { continue };
            let Ok(seen) = usage::read(&self.root, scanner.as_mut(), pid, &UsageOptions::default()) else {
                continue;
            };
            all.rss_bytes += seen.total.rss_bytes;
            all.taken_bytes += seen.total.rss_bytes + seen.total.kept_bytes;
            all.huge_bytes += seen.total.huge_bytes;
            all.waste_bytes = match (all.waste_bytes, seen.total.waste_bytes) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
            };
        }
        if let Some(counted) = self.counted() {
            all.taken_bytes = counted + all.hugetlb_bytes;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_figures_of_a_process_come_out_on_one_time_axis() {
        let memory = crate::memory::Mapping::new(64 << 20).unwrap();
        memory
            .words()
            .iter()
            .step_by(512)
            .for_each(|w| w.store(1, std::sync::atomic::Ordering::Relaxed));
        let sampler = Sampler::start(&ProcRoot::default(), None, None);
        sampler.process(std::process::id() as i32);
        sampler.figure("ops_per_s", 2.0);
        sampler.figure("ops_per_s", 4.0);
        // Two looks, however late they come on a busy machine.
        std::thread::sleep(EVERY * 5);
        let series = sampler.finish();
        assert!(series.seconds.len() >= 2, "{series:?}");
        assert!(series
            .columns
            .values()
            .all(|column| column.len() == series.seconds.len()));
        assert_eq!(series.columns["ops_per_s"][..2], [Some(3.0), None]);
        assert!(series.columns["rss_bytes"][0].unwrap() >= (64 << 20) as f64);
    }
}
