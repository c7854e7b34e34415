//! A program's memory on chosen page sizes during a run: the pools of libmemomania.
//!
//! ```text
//!   mosaic:2M   mosaic:1G   mosaic:2M:thp            the whole heap, and mappings (on 2 MB at most)
//!   mosaic:heap=1G@0+2G/2M:anon=4K                   a layout for each pool, as `mega mosaic` reads it, with / for its commas
//!   mosaic:2M:share=25%                              the first quarter of what the program needs
//!   mosaic:1G:fallback=smaller:reserve-1G=6G         what happens when pages are short; how many are reserved
//! ```
//!
//! 1 GB pages for mappings must be requested (`anon=1G`): a single guard page turns all of such a page into base pages.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use mega_core::units::{Bytes, Share};
use memomania_layout::layout::{Interval, Layout};
use memomania_layout::page::Kind;
use memomania_layout::settings::{Fallback, PoolSettings, Settings, Word};
use memomania_layout::wire;

/// The dynamic loader's list of libraries to preload.
const PRELOAD: &str = "LD_PRELOAD";

/// A program's memory as pools; without a pool, base pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mosaic {
    /// As written.
    text: String,
    heap: Layout,
    anon: Layout,
    /// The share of the program's memory on these pages; the rest is on base pages.
    share: Option<Share>,
    fallback: Fallback,
    /// Bytes to reserve, unless they follow from the program's memory.
    reserve: [Option<u64>; 2],
}

/// The sizes of which pages are reserved, the rarest first.
const RESERVED: [Kind; 2] = [Kind::Gigantic, Kind::Huge];

/// Reserved beyond a program's memory, as a divisor and in bytes: what allocators leave unused.
const SLACK_PART: u64 = 16;
const SLACK_BYTES: u64 = 64 << 20;

impl fmt::Display for Mosaic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn layout(text: &str) -> Result<Layout, String> {
    Layout::parse(&text.replace('/', ",")).map_err(|e| e.to_string())
}

/// The same with other page sizes. What is aligned to 1 GB is aligned to 2 MB.
fn replaced(layout: &Layout, from: Kind, to: Kind) -> Layout {
    let mut other = Layout::BASE;
    for interval in layout.intervals() {
        let kind = if interval.kind == from { to } else { interval.kind };
        // The intervals stay in order.
        let _ = other.push(Interval { kind, ..*interval });
    }
    other
}

/// `2M:thp` has a colon of its own.
fn pieces(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in text.split(':') {
        match all.last_mut() {
            Some(last) if piece.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("thp")) => {
                last.push(':');
                last.push_str(piece);
            }
            _ => all.push(piece.to_string()),
        }
    }
    all
}

impl Mosaic {
    /// Parses what follows `mosaic:`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut mosaic = Self {
            text: text.to_string(),
            heap: Layout::BASE,
            anon: Layout::BASE,
            share: None,
            fallback: Fallback::Fail,
            reserve: [None; 2],
        };
        let mut has_pages = false;
        for piece in pieces(text).iter().filter(|piece| !piece.is_empty()) {
            let Some((key, value)) = piece.split_once('=') else {
                mosaic.heap = layout(piece)?;
                mosaic.anon = replaced(&mosaic.heap, Kind::Gigantic, Kind::Huge);
                has_pages = true;
                continue;
            };
            match key {
                "heap" => mosaic.heap = layout(value)?,
                "anon" => mosaic.anon = layout(value)?,
                "share" => mosaic.share = Some(value.parse::<Share>().map_err(|e| e.to_string())?),
                "fallback" => {
                    let word = Fallback::parse(value);
                    mosaic.fallback = word.ok_or(format!("fallback is fail or smaller, not '{value}'"))?;
                }
                _ => {
                    let kind = RESERVED
                        .iter()
                        .position(|kind| key.strip_prefix("reserve-") == Some(kind.word()));
                    let kind = kind.ok_or(format!(
                        "'{key}' is not one of heap, anon, share, fallback, reserve-2M, reserve-1G"
                    ))?;
                    mosaic.reserve[kind] = Some(value.parse::<Bytes>().map_err(|e| e.to_string())?.0);
                }
            }
            has_pages |= matches!(key, "heap" | "anon");
        }
        if !has_pages {
            return Err("missing page size: mosaic:2M, mosaic:1G or mosaic:heap=LAYOUT:anon=LAYOUT".to_string());
        }
        let is_whole = |layout: &Layout| match layout.intervals() {
            [] => true,
            [only] => only.start == 0 && only.is_open(),
            _ => false,
        };
        if mosaic.share.is_some() && !(is_whole(&mosaic.heap) && is_whole(&mosaic.anon)) {
            return Err("share needs a single page size: mosaic:2M:share=25%".to_string());
        }
        Ok(mosaic)
    }

    /// Whether any part is on transparent huge pages.
    #[must_use]
    pub fn has_transparent(&self) -> bool {
        self.heap.has(Kind::Thp) || self.anon.has(Kind::Thp)
    }

    /// The pools of a program that needs this much memory: heap and anonymous mappings.
    fn layouts(&self, needs_bytes: u64) -> [Layout; 2] {
        let Some(share) = self.share else {
            return [self.heap, self.anon];
        };
        [self.heap, self.anon].map(|whole| {
            let mut part = Layout::BASE;
            if let Some(only) = whole.intervals().first() {
                let page = only.kind.bytes() as f64;
                let pages = (needs_bytes as f64 * share.fraction() / page).round();
                // An empty interval is none; no pool is so large that this fails.
                let _ = part.push(Interval {
                    end: (pages * page) as usize,
                    ..*only
                });
            }
            part
        })
    }

    /// Number of hugetlb pages to reserve for a program that needs this much memory, by size.
    #[must_use]
    pub fn pages(&self, needs_bytes: u64) -> Vec<(Kind, u64)> {
        let layouts = self.layouts(needs_bytes);
        let of = |(index, kind): (usize, &Kind)| {
            let demands: Vec<_> = layouts
                .iter()
                .filter(|l| l.has(*kind))
                .map(|l| l.demand(*kind))
                .collect();
            let pools = u64::try_from(demands.len()).ok().filter(|pools| *pools > 0)?;
            let page = kind.bytes() as u64;
            // Each pool starts on a page of its own.
            let most = (needs_bytes + needs_bytes / SLACK_PART + SLACK_BYTES).div_ceil(page) + pools - 1;
            let stated: usize = demands.iter().map(|(bytes, _)| bytes).sum();
            let is_open = demands.iter().any(|(_, is_open)| *is_open);
            let follows = if is_open {
                most
            } else {
                (stated as u64 / page).min(most)
            };
            Some((*kind, self.reserve[index].map_or(follows, |bytes| bytes.div_ceil(page))))
        };
        RESERVED.iter().enumerate().filter_map(of).collect()
    }

    /// The environment of a program that needs this much memory. Its processes write their reports to `report`; libraries preloaded
    /// already stay.
    ///
    /// # Errors
    /// The report's path cannot be passed on.
    pub fn environment(
        &self,
        needs_bytes: u64,
        library: &Path,
        report: &Path,
        preloaded: Option<&OsStr>,
    ) -> Result<Vec<(OsString, OsString)>, String> {
        let report = report.to_str().ok_or("the report's path is not UTF-8")?;
        let [heap, anon] = self
            .layouts(needs_bytes)
            .map(|layout| PoolSettings { layout, bytes: 0 });
        let value = wire::encode(&Settings {
            heap,
            anon,
            fallback: self.fallback,
            report,
            ..Settings::default()
        });
        if value.len() > wire::LONGEST {
            return Err("the layouts and the report's path are too long".to_string());
        }
        let mut list = OsString::from(library);
        if let Some(more) = preloaded.filter(|more| !more.is_empty()) {
            list.push(":");
            list.push(more);
        }
        Ok(vec![(wire::VARIABLE.into(), value.into()), (PRELOAD.into(), list)])
    }

    /// In words.
    #[must_use]
    pub fn about(&self) -> String {
        let share = self
            .share
            .map_or(String::new(), |share| format!(", the first {share} of it"));
        format!(
            "Memomania: heap on {}, mappings on {}{share}",
            pages_of(&self.heap),
            pages_of(&self.anon)
        )
    }
}

/// A layout as written; a uniform page size as one word.
fn pages_of(layout: &Layout) -> String {
    match layout.intervals() {
        [only] if only.start == 0 && only.is_open() => only.kind.to_string(),
        _ => layout.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn mosaic(text: &str) -> Mosaic {
        Mosaic::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn pages_are_set_aside_for_what_the_program_needs_and_no_more_than_the_layout_states() {
        let pages = |text| mosaic(text).pages(2 * GIB);
        assert_eq!(pages("2M"), [(Kind::Huge, 1120 + 1)]);
        assert_eq!(pages("1G"), [(Kind::Gigantic, 3), (Kind::Huge, 1120)]);
        assert_eq!(pages("heap=1G:anon=4K"), [(Kind::Gigantic, 3)]);
        assert_eq!(pages("heap=1G@0+1G/2M"), [(Kind::Gigantic, 1), (Kind::Huge, 1120)]);
        assert_eq!(pages("heap=2M@1G+64M"), [(Kind::Huge, 32)]);
        assert_eq!(pages("heap=2M@0+64G"), [(Kind::Huge, 1120)]);
        assert_eq!(pages("heap=2M:share=25%"), [(Kind::Huge, 256)]);
        assert_eq!(pages("heap=2M:share=0%"), []);
        assert_eq!(pages("1G:reserve-1G=6G"), [(Kind::Gigantic, 6), (Kind::Huge, 1120)]);
        assert_eq!(pages("4K"), []);
        assert_eq!(pages("2M:thp"), []);
    }

    #[test]
    fn mappings_have_gigantic_pages_only_when_asked() {
        assert_eq!(mosaic("1G").anon, mosaic("2M").anon);
        assert_eq!(mosaic("1G@0+1G/4K").anon.to_string(), "2M@0+1G,4K@1G");
        assert_eq!(mosaic("anon=1G").pages(GIB), [(Kind::Gigantic, 2)]);
        assert!(mosaic("2M:thp@2M").has_transparent() && !mosaic("2M").has_transparent());
    }

    #[test]
    fn what_the_program_is_started_with_is_what_the_library_reads() {
        let (library, report) = (Path::new("/lib/libmemomania.so"), Path::new("/tmp/report"));
        let of = |text: &str, preloaded: Option<&str>| {
            let preloaded = preloaded.map(OsStr::new);
            mosaic(text).environment(2 * GIB, library, report, preloaded).unwrap()
        };
        let made = of("heap=2M:thp:anon=1G@0+1G:fallback=smaller", Some("/lib/other.so"));
        assert_eq!(
            made[1],
            ("LD_PRELOAD".into(), "/lib/libmemomania.so:/lib/other.so".into())
        );
        let settings = wire::decode(made[0].1.to_str().unwrap()).unwrap();
        assert_eq!(settings.heap.layout.to_string(), "2M:thp@0");
        assert_eq!(settings.anon.layout.to_string(), "1G@0+1G");
        assert_eq!((settings.fallback, settings.report), (Fallback::Smaller, "/tmp/report"));
        let half = of("2M:share=50%", None);
        let settings = wire::decode(half[0].1.to_str().unwrap()).unwrap();
        assert_eq!(settings.heap.layout.to_string(), "2M@0+1G");
        assert_eq!(settings.fallback, Fallback::Fail);
        assert_eq!(half[1].1, "/lib/libmemomania.so");
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "missing page size"),
            ("fallback=fail", "missing page size"),
            ("3M", "no page size"),
            ("heap=2M/1M", "no page size"),
            ("2M@1M", "multiples"),
            ("2M:pages=4", "not one of heap"),
            ("2M:fallback=maybe", "fail or smaller"),
            ("2M:share=much", ""),
            ("2M:reserve-4K=1M", "not one of heap"),
            ("2M@0+64M/4K:share=50%", "single page size"),
            ("thp", "no page size"),
        ] {
            let error = Mosaic::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
