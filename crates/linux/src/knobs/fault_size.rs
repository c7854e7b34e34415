//! Which page size faults map: `--fault-size`.

use std::fmt;
use std::str::FromStr;

use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};

use super::{KnobError, Knobs};
use crate::knobs::thp::{self, Mode};

/// Size of the pages that faults map where memory allows.
///
/// Whichever it is, MADV_COLLAPSE still makes huge pages of 2 MB: it asks no setting (checked on 6.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSize {
    /// Base pages: every size `never`.
    Base,
    /// Folios of 64 KB: that size `always`, larger ones `never`.
    Small,
    /// Huge pages: 2 MB `always`.
    Huge,
}

/// 64 KB: most of the gain at faults for little memory.
const SMALL_BYTES: u64 = 64 << 10;

impl FaultSize {
    /// In bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Base => BASE_PAGE_BYTES,
            Self::Small => SMALL_BYTES,
            Self::Huge => HUGE_PAGE_BYTES,
        }
    }

    /// What the setting of this size has to be; none: as it is.
    fn mode(self, size_bytes: u64) -> Option<Mode> {
        match self {
            // A fault takes the largest size that is allowed, so only larger ones stand in the way.
            Self::Small | Self::Huge if size_bytes == self.bytes() => Some(Mode::Always),
            _ => (size_bytes > self.bytes()).then_some(Mode::Never),
        }
    }
}

impl FromStr for FaultSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "4K" => Ok(Self::Base),
            "64K" => Ok(Self::Small),
            "2M" => Ok(Self::Huge),
            _ => Err(format!(
                "'{}' is not one of 4K, 64K and 2M",
                crate::error::shorten(text)
            )),
        }
    }
}

impl fmt::Display for FaultSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "4K",
            Self::Small => "64K",
            Self::Huge => "2M",
        })
    }
}

/// Has all faults of this machine map pages of this size: a global setting, until `knobs` puts it back.
///
/// Needs per-size settings (6.8). Whatever fails, what was changed before is put back by `knobs` like everything else.
///
/// # Errors
/// [`KnobError::Unsupported`] before Linux 6.8, or as [`Knobs::set`].
pub fn fault_size(knobs: &mut Knobs, size: FaultSize) -> Result<(), KnobError> {
    let unsupported = |why| KnobError::Unsupported {
        what: format!("a fault size of {size}"),
        why,
    };
    let root = knobs.root().clone();
    let sizes = match thp::sizes(&root) {
        Err(error) if error.is_gone() => return Err(unsupported("the kernel has no transparent huge pages")),
        sizes => sizes?,
    };
    if sizes.is_empty() {
        return Err(unsupported(
            "it needs a setting per page size, hugepages-*kB, which Linux has from 6.8 on",
        ));
    }
    if size != FaultSize::Base && !sizes.contains_key(&size.bytes()) {
        return Err(unsupported(
            "the kernel has no setting for this page size on this processor",
        ));
    }
    for size_bytes in sizes.into_keys() {
        if let Some(mode) = size.mode(size_bytes) {
            let knob = root.thp(&thp::size_folder(size_bytes)).join("enabled");
            knobs.set(&knob, &mode.to_string())?;
        }
    }
    Ok(())
}
