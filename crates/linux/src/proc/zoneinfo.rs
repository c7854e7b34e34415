//! /proc/zoneinfo: of each zone, its free pages, watermarks and size.

use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// One zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// Zone name: "DMA32", "Normal" ...
    pub name: String,
    /// Free base pages.
    pub free_pages: Option<u64>,
    /// Below this many free pages an allocation has to reclaim by itself.
    pub min_pages: Option<u64>,
    /// Below this many kswapd and kcompactd are woken.
    pub low_pages: Option<u64>,
    /// kswapd stops here.
    pub high_pages: Option<u64>,
    /// Pages that the page allocator manages.
    pub managed_pages: Option<u64>,
    /// Size of the zone's span of physical memory in pages, holes included.
    pub spanned_pages: Option<u64>,
    /// Free pages on the processors' own lists, all processors together. They are in neither `free_pages` nor
    /// /proc/buddyinfo. All processors together may keep an eighth of the zone there (since 6.7).
    pub percpu_pages: Option<u64>,
    /// First frame number of the zone.
    pub start_pfn: Option<u64>,
}

/// The machine's zones, empty ones too.
pub fn read(root: &ProcRoot) -> Result<Vec<Zone>> {
    let path = root.proc.join("zoneinfo");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a zoneinfo file; `path` is for messages only. Lines that are not known are skipped.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Zone>> {
    let text = String::from_utf8_lossy(text);
    let mut zones: Vec<Zone> = Vec::new();
    for (at, line) in lines(path, &text) {
        if let Some(header) = line.strip_prefix("Node ") {
            let (node, name) = header.split_once(", zone").unwrap_or((header, ""));
            zones.push(Zone {
                node: at.number("node", Some(node))?,
                name: name.trim().to_owned(),
                ..Zone::default()
            });
            continue;
        }
        let Some(zone) = zones.last_mut() else {
            return Err(at.wrong("node", "a line such as 'Node 0, zone Normal' first", line));
        };
        let mut words = line.split_ascii_whitespace();
        if words.clone().next() == Some("count:") {
            let more: u64 = at.number("count", words.nth(1))?;
            zone.percpu_pages = Some(zone.percpu_pages.unwrap_or(0).saturating_add(more));
            continue;
        }
        let field = match (words.next(), words.clone().next()) {
            (Some("pages"), Some("free")) => {
                words.next();
                &mut zone.free_pages
            }
            (Some("min"), _) => &mut zone.min_pages,
            (Some("low"), _) => &mut zone.low_pages,
            (Some("high"), _) => &mut zone.high_pages,
            (Some("managed"), _) => &mut zone.managed_pages,
            (Some("spanned"), _) => &mut zone.spanned_pages,
            (Some("start_pfn:"), _) => &mut zone.start_pfn,
            _ => continue,
        };
        // The per-CPU page lists further down have fields of the same names with a colon ("high:"): they do not match.
        if field.is_none() {
            let name = line.split_ascii_whitespace().next().unwrap_or("");
            *field = Some(at.number(name, words.next())?);
        }
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Node 0, zone   Normal\n  per-node stats\n      nr_inactive_anon 3\n  pages free     100\n        boost    0\n        \
                        min      1\n        low      2\n        high     3\n        spanned  400\n        managed  390\n  pagesets\n    \
                        cpu: 0\n              count:    9\n              high:     63\n    cpu: 1\n              count:    4\n  start_pfn:           1048576\n";

    #[test]
    fn watermarks_are_not_taken_from_the_per_cpu_lists() {
        let zones = parse(Path::new("z"), TEXT.as_bytes()).unwrap();
        assert_eq!(zones.len(), 1);
        let zone = &zones[0];
        assert_eq!((zone.node, zone.name.as_str()), (0, "Normal"));
        assert_eq!(
            (zone.free_pages, zone.min_pages, zone.low_pages, zone.high_pages),
            (Some(100), Some(1), Some(2), Some(3))
        );
        assert_eq!((zone.managed_pages, zone.start_pfn), (Some(390), Some(1_048_576)));
        assert_eq!(zone.percpu_pages, Some(13));
    }

    #[test]
    fn a_watermark_without_a_number_is_named() {
        let error = parse(Path::new("z"), b"Node 0, zone DMA\n  min  x\n").unwrap_err();
        assert_eq!(error.to_string(), "z:2: min: expected a number, found 'x'");
    }
}
