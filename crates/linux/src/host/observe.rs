//! One look at the machine and at the memory of each managed process.

use std::time::Duration;

use mega_core::host::{Host, HostEvent, Wants};
use mega_core::observe::{Machine, Observation, ProcessId, ProcessView, Region};
use mega_core::units::{BasePages, Blocks, Bytes, Share, REGION_PAGES};

use super::{quiet, LinuxHost};
use crate::proc::{buddyinfo, meminfo, pressure, status};
use crate::scan::partly::Partly;
use crate::scan::{RegionFlags, ScanError, ScanRange, Scanner};
use crate::sys;
use crate::vma::Vma;

impl LinuxHost {
    pub(super) fn machine(&mut self) -> Machine {
        let root = &self.options.root;
        let (info, buddy, pressure) = (meminfo::read(root), buddyinfo::read(root), pressure::read(root));
        let mut machine = Machine {
            available_bytes: Bytes(0),
            total_bytes: Bytes(0),
            free_blocks: Blocks(0),
            pressure: None,
        };
        match info {
            Ok(info) => {
                machine.available_bytes = Bytes(info.available_bytes.unwrap_or(0));
                machine.total_bytes = Bytes(info.total_bytes.unwrap_or(u64::MAX));
            }
            Err(error) => self.notice_once("meminfo", || format!("promotions suspended: {error}")),
        }
        match buddy {
            Ok(buddy) => machine.free_blocks = buddy.free_blocks(),
            Err(error) => self.notice_once("buddyinfo", || format!("promotions suspended: {error}")),
        }
        match pressure {
            Ok(Some(pressure)) => {
                machine.pressure = Some(Share::millionths((pressure.some.avg10_percent * 1e4) as u32))
            }
            Ok(None) => self.notice_once("pressure", || "PSI unavailable; pressure limit disabled".into()),
            Err(error) => self.notice_once("pressure", || {
                format!("PSI unavailable; pressure limit disabled: {error}")
            }),
        }
        machine
    }

    pub(super) fn scan_all(&mut self, wants: &Wants) -> Vec<ProcessView> {
        // Processes with the least to read go first; what they leave of their share goes to the others.
        let mut ids: Vec<_> = self.managed.keys().copied().collect();
        ids.sort_by_cached_key(|id| self.managed[id].contents.unread());
        self.unscanned = 0;
        let mut allowance = wants.contents_cpu;
        let mut views = Vec::with_capacity(ids.len());
        for (done, &id) in ids.iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            let share = allowance / (ids.len() - done) as u32;
            match self.scan_one(id, wants, share) {
                Ok((regions, spent)) => {
                    allowance = allowance.saturating_sub(spent);
                    views.push(ProcessView { id, regions });
                }
                Err(ScanError::Gone) => self.drop_process(id),
                // The process stays: the next scan may well succeed.
                Err(error) => {
                    self.unscanned += 1;
                    self.note_failure(id, error.kind(), || {
                        format!("process {} cannot be scanned: {error}", id.pid)
                    });
                }
            }
        }
        views.sort_by_key(|view| view.id);
        views
    }

    fn scan_one(
        &mut self,
        id: ProcessId,
        wants: &Wants,
        allowance: Duration,
    ) -> Result<(Vec<Observation>, Duration), ScanError> {
        let Some(managed) = self.managed.get_mut(&id) else {
            return Err(ScanError::Gone);
        };
        let table = self.table.as_ref().and_then(|table| table.get(id.pid));
        let now = table.filter(|now| now.start_ticks == id.started);
        let reads_contents = wants.contents && self.options.contents && self.split_frees;
        let reads_kept = wants.contents && self.options.contents && self.partly.may_be();
        let is_known = (!reads_contents || managed.contents.unread() == 0) && (!reads_kept || managed.is_kept_known);
        if let Some(now) = now.filter(|_| is_known) {
            if let Some(regions) = managed.quiet.pass(now, &mut managed.aged) {
                return Ok((regions, Duration::ZERO));
            }
        }
        let scanner = self.scanner.as_mut();
        let pid = id.pid as i32;
        let mut status_error = None;
        // A kernel that does not say (before 5.0) is asked by trying.
        match status::read(&self.options.root, id.pid) {
            Err(error) if error.is_gone() => return Err(ScanError::Gone),
            Err(error) => status_error = Some(error),
            Ok(status) => {
                let disabled = status.thp_enabled == Some(false);
                if disabled && !std::mem::replace(&mut managed.thp_disabled, disabled) {
                    self.events.push(HostEvent::Notice(format!(
                    "process {} ({}) disabled THP for itself by prctl(PR_SET_THP_DISABLE): none of its memory can be promoted \
                     (Redis: start it with --disable-thp no)",
                    id.pid, status.name
                )));
                }
                managed.thp_disabled = disabled;
            }
        }
        managed.vmas = scanner.vmas(pid)?.iter().map(Vma::from).collect();
        let ranges: Vec<ScanRange> = managed
            .vmas
            .iter()
            .filter(|vma| vma.is_manageable())
            .filter_map(|vma| vma.regions().map(|range| (range.start, range.end)))
            .map(|(start, end)| ScanRange {
                start,
                end,
                young: wants.utilization && managed.aged.any_in(Region::at(start), Region::at(end)),
            })
            .collect();
        let mut found = Vec::new();
        for batch in batches(&ranges) {
            scanner.scan(pid, &batch, &mut found)?;
            // The whole observation is thrown away then; a terabyte takes seconds.
            if self.watch.is_stopped() {
                return Ok((Vec::new(), Duration::ZERO));
            }
        }
        // The look was at a number: was it our process's all the while?
        if !managed.process.is_alive() {
            return Err(ScanError::Gone);
        }
        managed.contents.begin_scan(
            found
                .iter()
                .filter(|scan| scan.flags.contains(RegionFlags::HUGE))
                .map(|scan| Region::at(scan.address)),
        );
        let mut spent = Duration::ZERO;
        if reads_contents {
            spent = managed
                .contents
                .inspect(allowance, |regions| read_contents(scanner, pid, regions, false));
        }
        managed.kept.clear();
        managed.is_kept_known = reads_kept;
        if reads_kept {
            let began = sys::process_cpu_time();
            let parts: Vec<u64> = found
                .iter()
                .filter(|scan| Partly::is_candidate(scan))
                .map(|scan| scan.address)
                .collect();
            for batch in parts.chunks(KEPT_BATCH) {
                // Whoever is not read now is read at a later look.
                if spent + sys::process_cpu_time().saturating_sub(began) >= allowance {
                    managed.is_kept_known = false;
                    break;
                }
                let kept = self.partly.read(pid, batch)?;
                let pages = kept.iter().map(|kept| BasePages(kept.pages.into()));
                managed
                    .kept
                    .extend(batch.iter().map(|address| Region::at(*address)).zip(pages));
            }
            spent += sys::process_cpu_time().saturating_sub(began);
        }
        let sees_accessed = scanner.sees_accessed();
        let regions: Vec<_> = found
            .iter()
            .filter_map(|scan| managed.observation(scan, sees_accessed, self.options.dry_run))
            .collect();
        managed.aged.begin(quiet::accessed(&regions));
        managed.quiet.keep(now, &regions);
        if let Some(error) = status_error {
            self.note_failure(id, format!("status: {:?}", error.errno()), || {
                format!("whether process {} disabled THP for itself is unknown: {error}", id.pid)
            });
        }
        Ok((regions, spent))
    }
}

/// Regions read at a time for what they keep, so that the allowance is kept.
const KEPT_BATCH: usize = 64;
/// Bytes of address space scanned between two looks at the stop request: some tenths of a second where everything is mapped and cold.
const BATCH_BYTES: u64 = 64 << 30;

/// The ranges in order, in pieces of at most [`BATCH_BYTES`] together.
fn batches(ranges: &[ScanRange]) -> Vec<Vec<ScanRange>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + (BATCH_BYTES - bytes));
            batch.push(ScanRange { start, end, ..*range });
            bytes += end - start;
            start = end;
            if bytes == BATCH_BYTES {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

pub(super) fn read_contents(
    scanner: &mut dyn Scanner,
    pid: i32,
    regions: &[Region],
    quick: bool,
) -> Vec<(Region, u16)> {
    let addresses: Vec<_> = regions.iter().map(|region| region.address()).collect();
    let mut found = Vec::new();
    // A process that goes away meanwhile simply has no contents; the next look at it says so.
    let _ = match quick {
        false => scanner.zero_filled(pid, &addresses, &mut found),
        true => scanner.at_most_zero_filled(pid, &addresses, &mut found),
    };
    found
        .iter()
        .filter(|contents| contents.checked == REGION_PAGES as u16 && !contents.raced)
        .map(|contents| (Region::at(contents.address), contents.zero_filled))
        .collect()
}
