//! A made-up program: pages that are touched, a kernel that maps base or huge pages, and the helper that asks and acts.

#![allow(dead_code)] // two test programs and a bench share this, and each uses a part of it

use std::collections::{BTreeMap, BTreeSet};

use mega_range::auto::{Auto, Pace};
use mega_range::density::Population;
use mega_range::filled::pages;
use mega_range::mappings::Mappings;
use mega_range::orders::{Order, Orders, Outcome};
use mega_range::span::{down, Span, PAGE, PAGES, REGION};
use mega_range::world::{Conditions, Memory};

/// A region of memory.
#[derive(Debug, Clone, Default)]
pub struct Region {
    touched: Vec<bool>,
    touched_count: u32,
    huge: bool,
    /// All base pages were populated ahead.
    whole: bool,
    /// Mapped by base pages from now on.
    split: bool,
    /// Base pages that the program has unmapped of its huge page, which is not split.
    kept: u32,
}

/// The program's memory, as the kernel has it.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    pub mappings: Vec<Span>,
    advised: Vec<Span>,
    regions: BTreeMap<u64, Region>,
    pub refuses: Option<Outcome>,
    /// Regions whose pages are a child's, too.
    shared: BTreeSet<u64>,
    /// Regions of those that were copied by a collapse.
    pub copied: u64,
    /// Orders to release a region.
    pub releases: u64,
    /// Orders to make a region a probe.
    pub probes: u64,
    /// Contents cannot be read.
    pub hides_contents: bool,
}

impl Kernel {
    fn region(&mut self, address: u64) -> &mut Region {
        let region = self.regions.entry(down(address)).or_default();
        region.touched.resize(PAGES as usize, false);
        region
    }

    /// The program writes to the page at this address.
    pub fn touch(&mut self, address: u64) {
        let whole = Span::region(down(address));
        let in_one = self.mappings.iter().any(|mapping| mapping.contains(whole));
        let is_advised = in_one
            && self
                .advised
                .iter()
                .any(|span| span.start <= address && address < span.end);
        let region = self.region(address);
        if region.touched_count == 0 && is_advised && !region.split {
            region.huge = true;
        }
        let page = ((address - down(address)) / PAGE) as usize;
        if !region.touched[page] {
            region.touched[page] = true;
            region.touched_count += 1;
        }
    }

    /// The program maps; the mapping merges with those beside it.
    pub fn map(&mut self, span: Span) {
        self.mappings.push(span);
        self.merge();
    }

    /// The program forks: what it has touched is a child's, too.
    pub fn fork(&mut self) {
        self.shared = self.regions.keys().copied().collect();
    }

    /// The program unmaps a span.
    pub fn unmap(&mut self, span: Span) {
        let parts = |from: &[Span]| -> Vec<Span> {
            let of = from.iter().flat_map(|mapping| {
                let before = Span::new(mapping.start, mapping.end.min(span.start));
                let after = Span::new(mapping.start.max(span.end), mapping.end);
                [before, after]
            });
            of.filter(|part| !part.is_empty()).collect()
        };
        self.mappings = parts(&self.mappings);
        self.advised = parts(&self.advised);
        self.regions.retain(|&start, _| !span.contains(Span::region(start)));
    }

    /// The program gives these base pages of a region back: its huge page stays whole.
    pub fn give_back(&mut self, region: u64, pages: u32) {
        let region = self.region(region);
        region.kept = if region.huge { pages } else { 0 };
        (region.huge, region.whole) = (false, false);
        region.touched_count = PAGES - pages;
        region
            .touched
            .iter_mut()
            .take(pages as usize)
            .for_each(|touched| *touched = false);
    }

    /// The kernel's thread makes the region huge, however little of it is populated.
    pub fn khugepaged(&mut self, region: u64) {
        let region = self.region(region);
        region.huge |= populated(region) > 0;
    }

    /// Bytes that are unmapped and not free.
    pub fn kept(&self) -> u64 {
        self.regions.values().map(|region| u64::from(region.kept) * PAGE).sum()
    }

    /// The program advises a mapping.
    pub fn advise(&mut self, mapping: Span) {
        self.advised.push(mapping);
        self.merge();
    }

    /// Mappings that adjoin and are alike are one.
    fn merge(&mut self) {
        self.advised = merged(&mut self.advised, |_, _| true);
        let is_advised = |of: Span| self.advised.iter().any(|span| span.contains(of));
        self.mappings = merged(&mut self.mappings.clone(), |a, b| is_advised(a) == is_advised(b));
    }

    pub fn is_advised(&self, span: Span) -> bool {
        self.advised.iter().any(|advised| advised.contains(span))
    }

    /// Bytes that are resident.
    pub fn resident(&self) -> u64 {
        self.regions
            .values()
            .map(|region| u64::from(populated(region)) * PAGE)
            .sum()
    }

    /// Bytes that base pages would take.
    pub fn touched(&self) -> u64 {
        self.regions
            .values()
            .map(|region| u64::from(region.touched_count) * PAGE)
            .sum()
    }

    /// Regions mapped huge.
    pub fn huge(&self) -> usize {
        self.regions.values().filter(|region| region.huge).count()
    }

    /// Carries out an order as the kernel would.
    pub fn act(&mut self, order: Order) -> Outcome {
        if let Some(outcome) = self.refuses {
            return outcome;
        }
        match order {
            Order::Advise { mapping, .. } => {
                assert!(
                    self.mappings.contains(&mapping),
                    "advice for a part of a mapping: {mapping:x?}"
                );
                self.advise(mapping);
            }
            Order::Withdraw { mapping, .. } => {
                assert!(
                    self.mappings.contains(&mapping),
                    "withdrawn from a part of a mapping: {mapping:x?}"
                );
                self.advised.retain(|advised| !mapping.contains(*advised));
            }
            Order::Populate(span) => {
                if !self.mappings.iter().any(|mapping| mapping.contains(span)) {
                    return Outcome::Gone;
                }
                let huge = self.is_advised(span);
                let mut at = span.start;
                while at < span.end {
                    let region = self.region(at);
                    region.huge |= region.touched_count == 0 && huge;
                    region.whole = true;
                    at += REGION;
                }
            }
            Order::Collapse(region) => {
                if !self
                    .mappings
                    .iter()
                    .any(|mapping| mapping.contains(Span::region(region)))
                {
                    return Outcome::Gone;
                }
                let collapsed = self.region(region);
                (collapsed.huge, collapsed.kept) = (true, 0);
                self.copied += u64::from(self.shared.remove(&region));
            }
            Order::Probe(region) => {
                self.probes += 1;
                let region = self.region(region);
                region.huge = false;
                region.whole = false;
                region.split = true;
            }
            Order::GiveBack(region) => {
                let region = self.region(region);
                region.whole &= !region.huge;
                region.huge = false;
            }
            Order::Release(region) => {
                self.releases += 1;
                self.region(region).kept = 0;
            }
        }
        Outcome::Done
    }
}

/// The spans by address, those merged that adjoin or overlap and are alike.
fn merged(spans: &mut [Span], are_alike: impl Fn(Span, Span) -> bool) -> Vec<Span> {
    spans.sort_by_key(|span| span.start);
    let mut merged: Vec<Span> = Vec::new();
    for &span in spans.iter() {
        match merged.last_mut() {
            Some(last) if last.end >= span.start && are_alike(*last, span) => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

fn populated(region: &Region) -> u32 {
    if region.huge || region.whole {
        PAGES
    } else {
        region.touched_count
    }
}

impl Memory for Kernel {
    fn has_partly_unmapped(&mut self) -> bool {
        self.kept() > 0
    }

    fn populations(&mut self, from: u64, of: &mut [Population]) -> bool {
        for (index, population) in of.iter_mut().enumerate() {
            let region = self.regions.get(&(from + index as u64 * REGION));
            *population = region.map_or(Population::default(), |region| Population {
                present: populated(region),
                huge: if region.huge { PAGES } else { 0 },
            });
        }
        true
    }

    fn is_reached(&mut self, address: u64) -> bool {
        let region = self.regions.get(&down(address));
        region.is_some_and(|region| populated(region) > 0)
    }

    fn is_filled(&mut self, address: u64) -> Option<bool> {
        let is_readable = |region: &&Region| region.huge && !self.hides_contents;
        let region = self.regions.get(&address).filter(is_readable)?;
        Some(pages(address).all(|page| region.touched[((page - address) / PAGE) as usize]))
    }

    fn is_shared(&mut self, region: u64) -> bool {
        self.shared.contains(&region)
    }

    fn first_populated(&mut self, of: Span) -> Option<u64> {
        let mut regions = self.regions.range(of.start..of.end);
        regions
            .find(|(_, region)| populated(region) > 0)
            .map(|(&start, _)| start)
    }

    fn isolated(&mut self, of: Span) -> u64 {
        let is_there = |start: u64| of.start <= start && self.regions.get(&start).is_some_and(|r| populated(r) > 0);
        let starts = self.regions.range(of.start..of.end).map(|(&start, _)| start);
        starts
            .filter(|&start| is_there(start) && !is_there(start - REGION) && !is_there(start + REGION))
            .count() as u64
    }
}

/// Program, kernel and helper.
#[derive(Default)]
pub struct World {
    pub kernel: Kernel,
    pub auto: Auto,
    pub orders: Orders,
    pub conditions: Conditions,
    /// What a call takes.
    pub call_ns: u64,
    /// The most that was resident beyond what the program touched.
    pub waste: u64,
}

impl World {
    /// Time passes, and the helper looks once.
    pub fn tick(&mut self, ns: u64) -> Pace {
        self.conditions.now_ns += ns;
        self.conditions.resident_bytes = self.kernel.resident();
        let mut followed = Mappings::new();
        followed.begin();
        self.kernel.mappings.iter().for_each(|&mapping| followed.add(mapping));
        self.auto.follow(followed.list());
        let pace = self.auto.decide(&self.conditions, &mut self.kernel, &mut self.orders);
        for &order in self.orders.clone().list() {
            let outcome = self.kernel.act(order);
            self.auto.done(order, outcome, self.call_ns, self.conditions.now_ns);
        }
        let added = self.kernel.resident() - self.kernel.touched();
        self.waste = self.waste.max(added + self.kernel.copied * REGION);
        pace
    }

    /// So many looks, a millisecond apart.
    pub fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.tick(1_000_000);
        }
    }

    /// The program fills a span page by page, with a look after each so many pages.
    pub fn fill(&mut self, span: Span, pages_a_tick: u64) {
        let mut at = span.start;
        let mut pages = 0;
        while at < span.end {
            self.kernel.touch(at);
            at += PAGE;
            pages += 1;
            if pages % pages_a_tick == 0 {
                self.tick(1_000_000);
            }
        }
    }
}
