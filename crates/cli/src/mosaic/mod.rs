//! Running a command under the preload library of `crates/memomania`: the library, hugetlb pages, and what processes report.

use std::ffi::OsString;
use std::path::Path;

use mega_core::units::Bytes;
use memomania_layout::page::Kind;

use crate::exit::tell;

pub mod report;
pub mod reserve;
pub mod target;

/// The loader's list of libraries to load first.
pub const PRELOAD: &str = "LD_PRELOAD";

/// hugetlb pages to reserve, by size; none for what the layouts state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve(pub Vec<(Kind, Bytes)>);

/// As in `2M=512M,1G=2G`.
///
/// # Errors
/// Why the text is none.
pub fn parse_reserve(text: &str) -> Result<Reserve, String> {
    let amount = |part: &str| -> Result<(Kind, Bytes), String> {
        let (kind, bytes) = part
            .split_once('=')
            .ok_or(format!("'{part}' is not as in 2M=512M,1G=2G"))?;
        let kind = Kind::parse(kind).filter(|kind| kind.is_hugetlb());
        let kind = kind.ok_or(format!("'{part}': pages of 2M and 1G can be reserved"))?;
        Ok((kind, bytes.parse::<Bytes>().map_err(|error| error.to_string())?))
    };
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(amount).collect::<Result<Vec<_>, String>>().map(Reserve)
}

impl Reserve {
    /// How much of this size was asked for in so many words.
    fn of(&self, kind: Kind) -> Option<Bytes> {
        self.0.iter().find(|(own, _)| *own == kind).map(|(_, bytes)| *bytes)
    }
}

/// The library comes first, so that its functions are found before those of others; what was there stays.
#[must_use]
pub fn with_library(library: &Path, existing: Option<OsString>) -> OsString {
    let mut list = OsString::from(library);
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        list.push(":");
        list.push(existing);
    }
    list
}

/// A note about this run.
pub fn note(text: &str) {
    tell(&format!("mega: {text}"));
}
