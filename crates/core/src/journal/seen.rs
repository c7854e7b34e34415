//! Observations as lines of a full journal, and back.

use super::{Event, JournalError};
use crate::observe::{Can, Observation, Region};
use crate::units::{BasePages, HUGE_PAGE_BYTES};

const FLAGS: [&str; 7] = ["huge", "shared", "raced", "aged", "promote", "demote", "age"];

/// A `see` event for `count` regions with this observation.
pub fn see(pid: u32, started: u64, seen: &Observation, count: u64) -> Event {
    let on = [
        seen.huge,
        seen.shared,
        seen.raced,
        seen.aged,
        seen.can.promote,
        seen.can.demote,
        seen.can.age,
    ];
    let words: Vec<_> = FLAGS
        .iter()
        .zip(on)
        .filter(|(_, on)| *on)
        .map(|(word, _)| *word)
        .collect();
    Event::See {
        pid,
        started,
        region: seen.region,
        count,
        mapped_pages: seen.mapped.0,
        accessed_pages: seen.accessed.0,
        dirty_pages: seen.dirty.0,
        zero_pages: seen.zero.map(|zero| zero.0),
        kept_pages: Some(seen.kept.0).filter(|kept| *kept > 0),
        flags: if words.is_empty() {
            "-".to_string()
        } else {
            words.join("+")
        },
        why: seen.can.why,
    }
}

/// Regions in the largest address space (57 bits).
const ADDRESS_SPACE_REGIONS: u64 = (1 << 57) / HUGE_PAGE_BYTES;
/// The most regions that one scan may claim (32 TB), so that a few lines cannot exhaust memory.
pub(crate) const SEEN_MAX: u64 = 1 << 24;

/// The observations of a `see` event; none for other events. A count beyond the address space is an error.
pub fn seen(event: &Event) -> Result<Option<Vec<Observation>>, JournalError> {
    let Event::See {
        region,
        count,
        mapped_pages,
        accessed_pages,
        dirty_pages,
        zero_pages,
        kept_pages,
        flags,
        why,
        ..
    } = event
    else {
        return Ok(None);
    };
    if *count > SEEN_MAX || region.0.saturating_add(*count) > ADDRESS_SPACE_REGIONS {
        return Err(JournalError(format!(
            "count {count} is more than an address space holds"
        )));
    }
    let mut on = [false; FLAGS.len()];
    for word in flags.split('+').filter(|word| *word != "-") {
        let i = FLAGS
            .iter()
            .position(|flag| *flag == word)
            .ok_or_else(|| JournalError(format!("flag '{}'", word.chars().take(32).collect::<String>())))?;
        on[i] = true;
    }
    let [huge, shared, raced, aged, promote, demote, age] = on;
    let one = |i| Observation {
        region: Region(region.0 + i),
        mapped: BasePages(*mapped_pages),
        accessed: BasePages(*accessed_pages),
        dirty: BasePages(*dirty_pages),
        zero: zero_pages.map(BasePages),
        kept: BasePages(kept_pages.unwrap_or(0)),
        huge,
        shared,
        raced,
        aged,
        can: Can {
            promote,
            demote,
            age,
            why: *why,
        },
    };
    if !one(0).is_sane() {
        return Err(JournalError(format!("impossible page counts for region {region}")));
    }
    Ok(Some((0..*count).map(one).collect()))
}
