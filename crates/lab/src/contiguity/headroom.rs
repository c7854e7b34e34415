//! How much memory may be taken without driving the machine into reclaim.

use mega_core::units::{Bytes, Share};
use mega_linux::error::Error;
use mega_linux::proc::{cgroup, meminfo, ProcRoot};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// We never push available memory below this, nor below [`MARGIN_SHARE`] of all memory.
pub const MARGIN_BYTES: u64 = 1 << 30;
/// See [`MARGIN_BYTES`].
pub const MARGIN_SHARE: Share = Share::percent(5);

/// Why memory is not taken.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// The request exceeds the headroom.
    #[error(
        "{} is more than may be taken: at most {} here, to keep {} of the {} available free",
        Bytes(*.wanted_bytes),
        Bytes(*.usable_bytes),
        Bytes(*.available_bytes - (*.usable_bytes).min(*.available_bytes)),
        Bytes(*.available_bytes)
    )]
    TooMuch {
        /// Requested.
        wanted_bytes: u64,
        /// Most that may be taken.
        usable_bytes: u64,
        /// Available.
        available_bytes: u64,
    },
    /// /proc/meminfo cannot be read or has no MemAvailable.
    #[error("cannot tell how much memory is available: {0}")]
    Unknown(String),
}

impl From<Error> for RoomError {
    fn from(error: Error) -> Self {
        Self::Unknown(error.to_string())
    }
}

/// How much to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Amount {
    /// Seven eighths of what is available (as the study's 28 of 32 GB), or what may be taken if that is less.
    #[default]
    Most,
    /// This many bytes.
    Bytes(u64),
    /// This share of what is available.
    Share(Share),
}

impl FromStr for Amount {
    type Err = String;

    /// `12G`, `512M`, or `80%` of what is available.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.parse::<Bytes>().map(|bytes| Self::Bytes(bytes.0));
        bytes
            .or_else(|_| text.parse::<Share>().map(Self::Share))
            .map_err(|_| format!("'{text}' is neither a size such as 12G nor a share such as 80%"))
    }
}

impl fmt::Display for Amount {
    /// In the form that parses back; the default prints as `7/8`, which does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Most => f.write_str("7/8"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Share(share) => share.fmt(f),
        }
    }
}

/// Available memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The kernel's MemAvailable, or what our control group may still use if that is less.
    pub available_bytes: u64,
    /// What may be taken of it.
    pub usable_bytes: u64,
}

impl Room {
    /// Reads the headroom.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(root: &ProcRoot) -> Result<Self, RoomError> {
        let info = meminfo::read(root)?;
        let (Some(available), Some(total)) = (info.available_bytes, info.total_bytes) else {
            return Err(RoomError::Unknown("/proc/meminfo has no MemAvailable".to_string()));
        };
        Ok(Self::of(available, total, group_left_bytes(root)))
    }

    fn of(available: u64, total: u64, group_left: Option<u64>) -> Self {
        let margin = MARGIN_BYTES.max((MARGIN_SHARE.fraction() * total as f64) as u64);
        let usable = available.saturating_sub(margin);
        match group_left {
            // The group's OOM killer acts at its limit, whatever the machine has left.
            Some(left) if left < available => Self {
                available_bytes: left,
                usable_bytes: usable.min(left - left / 20),
            },
            _ => Self {
                available_bytes: available,
                usable_bytes: usable,
            },
        }
    }

    /// An amount in bytes.
    ///
    /// # Errors
    /// When it is more than may be taken.
    pub fn admit(&self, amount: Amount) -> Result<u64, RoomError> {
        let wanted = match amount {
            Amount::Most => (self.available_bytes / 8 * 7).min(self.usable_bytes),
            Amount::Bytes(bytes) => bytes,
            Amount::Share(share) => (share.fraction() * self.available_bytes as f64) as u64,
        };
        if wanted > self.usable_bytes {
            return Err(RoomError::TooMuch {
                wanted_bytes: wanted,
                usable_bytes: self.usable_bytes,
                available_bytes: self.available_bytes,
            });
        }
        Ok(wanted)
    }
}

/// What our control groups (v2) may still use, the tightest of them: limit less usage without file cache. `None`: no limit.
fn group_left_bytes(root: &ProcRoot) -> Option<u64> {
    let memberships = cgroup::read(root, std::process::id()).ok()?;
    let v2 = memberships.iter().find(|m| m.controllers.is_empty())?;
    let mount = root.sys.join("fs/cgroup");
    let mut folder = mount.join(v2.path.trim_start_matches('/'));
    let mut least = None;
    while folder.starts_with(&mount) {
        if let Some(left) = left_in(&folder) {
            least = Some(least.map_or(left, |l: u64| l.min(left)));
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

fn left_in(folder: &Path) -> Option<u64> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = text("memory.max")?.trim().parse().ok()?;
    let has: u64 = text("memory.current")?.trim().parse().ok()?;
    let stat = text("memory.stat").unwrap_or_default();
    let caches = stat.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        matches!(name, "inactive_file" | "active_file").then(|| value.trim().parse::<u64>().ok())?
    });
    Some(limit.saturating_sub(has.saturating_sub(caches.sum())))
}

/// Makes this process the OOM killer's first choice: it takes memory on purpose.
///
/// # Errors
/// When the kernel refuses.
pub fn go_first() -> std::io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_gigabyte_or_a_twentieth_stays_free() {
        assert_eq!(Room::of(10 * GIB, 16 * GIB, None).usable_bytes, 9 * GIB);
        let large = Room::of(100 * GIB, 200 * GIB, None);
        assert_eq!(large.usable_bytes, 90 * GIB);
        assert_eq!(Room::of(GIB / 2, 16 * GIB, None).usable_bytes, 0);
    }

    #[test]
    fn a_control_groups_limit_counts_where_it_is_less() {
        let room = Room::of(10 * GIB, 16 * GIB, Some(2 * GIB));
        assert_eq!(room.available_bytes, 2 * GIB);
        assert!(room.usable_bytes > 2 * GIB * 9 / 10 && room.usable_bytes < 2 * GIB);
        assert_eq!(
            Room::of(10 * GIB, 16 * GIB, Some(12 * GIB)),
            Room::of(10 * GIB, 16 * GIB, None)
        );
    }

    #[test]
    fn what_is_too_much_is_refused_with_what_can_be_had() {
        let room = Room::of(10 * GIB, 16 * GIB, None);
        assert_eq!(room.admit(Amount::Bytes(GIB)).unwrap(), GIB);
        assert_eq!(room.admit(Amount::Share(Share::percent(50))).unwrap(), 5 * GIB);
        assert_eq!(room.admit(Amount::Most).unwrap(), 10 * GIB / 8 * 7);
        assert_eq!(Room::of(4 * GIB, 16 * GIB, None).admit(Amount::Most).unwrap(), 3 * GIB);
        let text = room.admit(Amount::Bytes(10 << 40)).unwrap_err().to_string();
        assert_eq!(
            text,
            "10T is more than may be taken: at most 9.0G here, to keep 1.0G of the 10G available free"
        );
        assert!(room.admit(Amount::Share(Share::FULL)).is_err());
    }

    #[test]
    fn amounts_are_sizes_or_shares() {
        assert_eq!("512M".parse(), Ok(Amount::Bytes(512 << 20)));
        assert_eq!("80%".parse(), Ok(Amount::Share(Share::percent(80))));
        for bad in ["", "lots", "-1G", "101%"] {
            assert!(bad.parse::<Amount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_limit_of_a_control_group_above_counts_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        let group = root.sys.join("fs/cgroup/a/b");
        std::fs::create_dir_all(&group).unwrap();
        let own = root.of_process(std::process::id(), "cgroup");
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(own, "0::/a/b\n").unwrap();
        assert_eq!(group_left_bytes(&root), None);
        std::fs::write(group.join("memory.max"), "max\n").unwrap();
        std::fs::write(group.join("memory.current"), "1\n").unwrap();
        let above = root.sys.join("fs/cgroup/a");
        std::fs::write(above.join("memory.max"), "1000\n").unwrap();
        std::fs::write(above.join("memory.current"), "900\n").unwrap();
        std::fs::write(
            above.join("memory.stat"),
            "anon 700\ninactive_file 150\nactive_file 50\n",
        )
        .unwrap();
        assert_eq!(group_left_bytes(&root), Some(300));
    }
}
