//! Before a scanner that reads page tables is trusted it looks at memory of our own whose state we know.

use super::maps::{self, VmaKind};
use super::raw::Mapping;
use super::{BpfScanner, RegionFlags, RegionScan, ScanError, ScanRange, Scanner, BASE_BYTES, BASE_PAGES, REGION_BYTES};

/// `MADV_COLLAPSE` (Linux 6.1).
const MADV_COLLAPSE: i32 = 25;
/// Compaction, DAMON or khugepaged may get between the pattern and the look.
const TRIES: usize = 5;

/// Compares counts, maps and contents with a known pattern.
pub(super) fn tables(name: &'static str, scanner: &mut dyn Scanner, young: bool) -> Result<(), ScanError> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match once(scanner, young)? {
            None => return Ok(()),
            Some(difference) => last = difference,
        }
    }
    Err(ScanError::refused(
        name,
        format!("it does not see our own memory as it is: {last}"),
    ))
}

fn once(scanner: &mut dyn Scanner, young: bool) -> Result<Option<String>, ScanError> {
    let pid = std::process::id() as i32;
    let memory = Mapping::anonymous(5 * REGION_BYTES as usize).map_err(ScanError::io("mapping memory"))?;
    let base = memory.aligned();
    // Refused without transparent huge pages; then all memory is base pages anyway.
    let _ = memory.advise(base, 4 * REGION_BYTES, libc::MADV_NOHUGEPAGE);
    // Region 0: a third written, a third only read, a third untouched. Region 1: nothing. Region 2: all written.
    let page = |region: u64, page: u64| base + region * REGION_BYTES + page * BASE_BYTES;
    let mut expect = RegionScan::at(base);
    let mut written = [0u64; 8];
    for i in 0..u64::from(BASE_PAGES) {
        match i % 3 {
            0 => {
                memory.put(page(0, i), i + 1);
                expect.mapped += 1;
                expect.accessed += 1;
                expect.dirty += 1;
                written[i as usize / 64] |= 1 << (i % 64);
            }
            1 => {
                memory.get(page(0, i));
                expect.mapped += 1;
                expect.accessed += 1;
                expect.zero += 1;
                expect.write_protected += 1;
            }
            _ => {}
        }
        if i % 2 == 0 {
            memory.put(page(2, i), 0);
        } else {
            memory.put(page(2, i) + BASE_BYTES - 8, 1);
        }
    }
    let range = ScanRange {
        start: base,
        end: base + 4 * REGION_BYTES,
        young,
    };
    let mut seen = Vec::new();
    scanner.scan(pid, &[range], &mut seen)?;
    let mut full = RegionScan::at(page(2, 0));
    (full.mapped, full.accessed, full.dirty) = (BASE_PAGES, BASE_PAGES, BASE_PAGES);
    // Without page flags the accessed bits may have been moved away by others, so they prove nothing.
    let plain = |r: &RegionScan| {
        let accessed = if young { r.accessed } else { 0 };
        (
            r.address,
            r.mapped,
            accessed,
            r.dirty,
            r.zero,
            r.write_protected,
            r.swapped,
            r.is_huge(),
        )
    };
    if seen.iter().map(plain).ne([expect, full].iter().map(plain)) {
        return Ok(Some(format!("saw {seen:?}, not {expect:?} and {full:?}")));
    }
    let map = scanner.page_map(pid, base)?;
    if map.dirty != written || (0..8).any(|w| map.zero[w] != map.mapped[w] & !written[w]) {
        return Ok(Some(format!("page map {map:x?}, written {written:x?}")));
    }
    // The rest needs a huge page; without one it is not checked.
    if memory.advise(page(2, 0), REGION_BYTES, libc::MADV_HUGEPAGE).is_err()
        || memory.advise(page(2, 0), REGION_BYTES, MADV_COLLAPSE).is_err()
    {
        return Ok(None);
    }
    let (mut huge, mut contents) = (Vec::new(), Vec::new());
    scanner.scan(
        pid,
        &[ScanRange {
            start: page(2, 0),
            end: page(3, 0),
            young,
        }],
        &mut huge,
    )?;
    let [region] = huge[..] else {
        return Ok(Some(format!("huge page seen as {huge:?}")));
    };
    if !region.flags.contains(RegionFlags::HUGE) || region.mapped != BASE_PAGES {
        return Ok(Some(format!("huge page seen as {region:?}")));
    }
    scanner.zero_filled(pid, &[page(2, 0)], &mut contents)?;
    let half = BASE_PAGES / 2;
    Ok((contents[0].zero_filled != half || contents[0].checked != BASE_PAGES)
        .then(|| format!("contents {:?}, not {half} zero pages", contents[0])))
}

/// Compares the VMA iterator with smaps: ranges and all the flags that smaps names.
pub(super) fn vmas(scanner: &mut BpfScanner) -> Result<(), String> {
    let pid = std::process::id() as i32;
    let memory = Mapping::anonymous(4 * REGION_BYTES as usize).map_err(|e| e.to_string())?;
    let base = memory.aligned();
    let part = |i: u64| base + i * REGION_BYTES / 2;
    let advice = [(0, libc::MADV_HUGEPAGE), (2, libc::MADV_NOHUGEPAGE)];
    for (i, advice) in advice {
        // Refused without transparent huge pages: then those flags stay unset in both lists.
        let _ = memory.advise(part(i), REGION_BYTES / 2, advice);
    }
    // A small locked part; RLIMIT_MEMLOCK may refuse even that, in both lists alike.
    let _ = memory.lock(part(4), 4 * BASE_BYTES);
    let text = maps::read_smaps(pid).map_err(|e| e.to_string())?;
    let binary = scanner.vmas(pid).map_err(|e| e.to_string())?;
    let ours = |v: &&maps::RawVma| v.start >= base && v.end <= base + 4 * REGION_BYTES;
    let mut checked = 0;
    for expected in text.iter().filter(|v| v.start >= base && v.start < part(5)) {
        let same = binary.iter().filter(ours).find(|v| v.start == expected.start);
        // The last piece may merge with a neighbour that another thread maps meanwhile.
        let Some(found) = same else { continue };
        if found.vm_flags & maps::known_flags() != expected.vm_flags || found.kind != VmaKind::Anonymous {
            return Err(format!("saw {found:x?}, smaps has {expected:x?}"));
        }
        checked += 1;
    }
    if checked < 3 {
        return Err(format!("only {checked} of our own mappings were found"));
    }
    Ok(())
}
