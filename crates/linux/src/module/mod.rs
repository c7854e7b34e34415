//! mega.ko, where it is loaded: chosen blocks emptied, blocks counted, accessed bits read and cleared, allocations timed.
//!
//! `uapi.rs` has the structures as the kernel sees them; here they are behind calls that cannot be made wrongly. Nothing else in this
//! crate needs the module.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

use crate::sys;

mod outcome;
pub mod uapi;

pub use outcome::BlockOutcome;
use uapi::{Block, Compact, CompactBlock, Info, Probe, Region, RegionMap};

/// The device's file.
pub const DEVICE: &str = "/dev/mega";

/// Why the module cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// It is not loaded.
    #[error("mega.ko is not loaded ({} is not there)", .0.display())]
    Absent(PathBuf),
    /// We may not.
    #[error("{}: {errno} (needs root with CAP_SYS_ADMIN)", path.display())]
    Refused {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// It speaks another version.
    #[error(
        "mega.ko speaks version {found} of its interface, this program version {}: build both from the same sources",
        uapi::VERSION
    )]
    Version {
        /// The module's.
        found: u32,
    },
    /// A call failed.
    #[error("mega.ko: {what}: {errno}")]
    Call {
        /// What was being done.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

impl ModuleError {
    /// There is no such device: nothing is wrong, it is just not loaded.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

/// How [`Module::age`] goes about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ageing {
    /// Clear accessed bits.
    pub clear: bool,
    /// Flush the TLBs afterwards: without it an access may be missed.
    pub flush: bool,
    /// Also tell where only PG_young says that a page was accessed.
    pub young: bool,
    /// And clear that, too, so that reclaim learns of no access that we have seen.
    pub take: bool,
}

impl Ageing {
    fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.clear, uapi::AGE_CLEAR)
            | flag(self.flush, uapi::AGE_FLUSH)
            | flag(self.young, uapi::AGE_YOUNG)
            | flag(self.take, uapi::AGE_TAKE)
    }
}

/// What one call of [`Module::age`] came to, beside the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgedRange {
    /// Where to go on; the range's end when it came through.
    pub next: u64,
    /// Others' tables (a virtual machine's) map this memory, too: what they accessed is not seen.
    pub secondary: bool,
    /// In the kernel.
    pub took: Duration,
    /// The longest that the process's address space was locked for reading.
    pub lock_max: Duration,
}

/// The loaded module.
#[derive(Debug)]
pub struct Module {
    device: File,
    info: Info,
}

impl Module {
    /// Opens the device.
    ///
    /// # Errors
    /// It is not there, may not be opened, or speaks another version.
    pub fn open() -> Result<Self, ModuleError> {
        Self::open_at(Path::new(DEVICE))
    }

    /// Opens the device at another place.
    ///
    /// # Errors
    /// As [`Module::open`].
    pub fn open_at(path: &Path) -> Result<Self, ModuleError> {
        let device = OpenOptions::new().read(true).write(true).open(path);
        let device = device.map_err(|error| match error.kind() {
            ErrorKind::NotFound => ModuleError::Absent(path.into()),
            _ => ModuleError::Refused {
                path: path.into(),
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            },
        })?;
        let mut info = Info::default();
        // SAFETY: the request writes an `Info` and follows no pointer.
        unsafe { sys::ioctl(device.as_fd(), uapi::IOC_INFO, &mut info) }.map_err(|errno| match errno {
            // The number has the structure's size in it.
            Errno::NOTTY => ModuleError::Version { found: 0 },
            errno => ModuleError::Call { what: "info", errno },
        })?;
        if info.version != uapi::VERSION {
            return Err(ModuleError::Version { found: info.version });
        }
        Ok(Self { device, info })
    }

    /// What it said of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Which of its requests it answers, by their words.
    pub fn abilities(&self) -> Vec<&'static str> {
        const WORDS: [(u64, &str); 4] = [
            (uapi::CAN_COMPACT, "compact"),
            (uapi::CAN_BLOCKS, "blocks"),
            (uapi::CAN_AGE, "age"),
            (uapi::CAN_PROBE, "probe"),
        ];
        let can = |&(flag, word): &(u64, &'static str)| self.can(flag).then_some(word);
        WORDS.iter().filter_map(can).collect()
    }

    /// Whether it has this ability (`uapi::CAN_*`).
    pub fn can(&self, ability: u64) -> bool {
        self.info.abilities & ability != 0
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Empties the blocks of a list, in its order, for about `budget`; writes each one's outcome. With `huge` also those that hold huge
    /// pages.
    ///
    /// # Errors
    /// A list or a budget that is too large, or a signal before anything was done.
    pub fn compact(&self, list: &mut [CompactBlock], budget: Duration, huge: bool) -> Result<Compact, ModuleError> {
        let mut request = Compact {
            version: uapi::VERSION,
            flags: if huge { uapi::COMPACT_HUGE } else { 0 },
            list: list.as_mut_ptr() as u64,
            count: count(list.len()),
            budget_ns: ns(budget),
            ..Compact::default()
        };
        // SAFETY: the list is ours for the call and has `count` entries.
        unsafe { self.call("compact", uapi::IOC_COMPACT, &mut request) }?;
        Ok(request)
    }

    /// Looks at blocks from number `first` on; fills the list, and says how many there are.
    ///
    /// # Errors
    /// A list that is too long.
    pub fn blocks(&self, first: u64, list: &mut [Block]) -> Result<usize, ModuleError> {
        let mut request = uapi::Blocks {
            version: uapi::VERSION,
            first,
            list: list.as_mut_ptr() as u64,
            count: count(list.len()),
            ..uapi::Blocks::default()
        };
        // SAFETY: the list is ours for the call and has `count` entries.
        unsafe { self.call("blocks", uapi::IOC_BLOCKS, &mut request) }?;
        Ok(request.done as usize)
    }

    /// All blocks, from number 0.
    ///
    /// # Errors
    /// As [`Module::blocks`].
    pub fn all_blocks(&self) -> Result<Vec<Block>, ModuleError> {
        let mut list = vec![Block::default(); self.info.blocks as usize];
        let mut done = 0;
        while done < list.len() {
            let end = list.len().min(done + self.info.blocks_max as usize);
            match self.blocks(done as u64, &mut list[done..end])? {
                0 => break,
                some => done += some,
            }
        }
        list.truncate(done);
        Ok(list)
    }

    /// Reads, and clears, the accessed bits of a range (multiples of 2 MB) of a process. Appends its regions to `regions`, at most `most` of
    /// them, and to `maps`, if there, one map for each. It may end before the range does.
    ///
    /// # Errors
    /// EINVAL for a range that is none, ESRCH for a process that has ended, EBADF for what is no pidfd.
    pub fn age(
        &self,
        pidfd: BorrowedFd<'_>,
        range: Range<u64>,
        how: Ageing,
        most: usize,
        regions: &mut Vec<Region>,
        mut maps: Option<&mut Vec<RegionMap>>,
    ) -> Result<AgedRange, ModuleError> {
        let before = regions.len();
        let most = most.min(self.info.age_max as usize);
        regions.resize(before + most, Region::default());
        let mut request = uapi::Age {
            version: uapi::VERSION,
            flags: how.flags(),
            pidfd: pidfd.as_raw_fd(),
            count: count(most),
            start: range.start,
            end: range.end,
            list: regions[before..].as_mut_ptr() as u64,
            ..uapi::Age::default()
        };
        if let Some(maps) = &mut maps {
            maps.resize(before + most, RegionMap::default());
            request.maps = maps[before..].as_mut_ptr() as u64;
        }
        // SAFETY: both lists are ours for the call and have `count` entries.
        let called = unsafe { self.call("age", uapi::IOC_AGE, &mut request) };
        let done = called.as_ref().map_or(0, |()| request.done as usize);
        regions.truncate(before + done);
        if let Some(maps) = maps {
            maps.truncate(before + done);
        }
        called?;
        Ok(AgedRange {
            next: request.next,
            secondary: request.found & uapi::AGE_SECONDARY != 0,
            took: Duration::from_nanos(request.took_ns),
            lock_max: Duration::from_nanos(request.lock_max_ns),
        })
    }

    /// Allocates chunks as `request` says and frees them again; how long each took, in ns. The request's answers are filled in.
    ///
    /// # Errors
    /// A request that is none.
    pub fn probe(&self, request: &mut Probe) -> Result<Vec<u32>, ModuleError> {
        // The module may write as many as are asked for; touched beforehand, so that no fault falls into the measurement.
        let mut times = vec![u32::MAX; request.count.min(self.info.probe_max) as usize];
        times
            .iter_mut()
            .step_by(1024)
            .for_each(|time| *time = std::hint::black_box(0));
        request.version = uapi::VERSION;
        request.count = count(times.len());
        request.times = times.as_mut_ptr() as u64;
        // SAFETY: the list is ours for the call and has `count` entries.
        let called = unsafe { self.call("probe", uapi::IOC_PROBE, request) };
        request.times = 0;
        called?;
        times.truncate(request.done as usize);
        Ok(times)
    }

    /// # Safety
    /// `number` is of a request of type `T`, and every address in it is of memory that is ours and as long as it says.
    unsafe fn call<T>(&self, what: &'static str, number: u64, request: &mut T) -> Result<(), ModuleError> {
        // SAFETY: as above.
        unsafe { sys::ioctl(self.fd(), number, request) }.map_err(|errno| ModuleError::Call { what, errno })
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_or_is_something_else_is_said_so() {
        let absent = Module::open_at(Path::new("/nonexistent/mega")).unwrap_err();
        assert_eq!(
            absent.to_string(),
            "mega.ko is not loaded (/nonexistent/mega is not there)"
        );
        let other = Module::open_at(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(other, ModuleError::Version { found: 0 }), "{other}");
    }
}
