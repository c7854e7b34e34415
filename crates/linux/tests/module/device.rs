//! A device's memory, mapped by huge entries that no struct page belongs to (tests/vm/pfnmap, as vfio-pci maps a BAR).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use mega_linux::module::{uapi, Ageing};

use super::memory::REGION;
use super::module;

/// Where the device's module is; `tests/vm/module` says it.
const VARIABLE: &str = "MEGA_TEST_PFNMAP";

/// Address space that is given back in the end.
struct Space {
    start: u64,
    bytes: usize,
}

impl Space {
    fn reserve(bytes: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: address space of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self {
            start: at as u64,
            bytes,
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: what `reserve` got, and what was mapped over it.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }
}

#[test]
fn a_devices_memory_in_huge_entries_is_left_alone_and_what_lies_beside_it_is_seen() {
    let Some(module) = module() else { return };
    let Some(device) = std::env::var_os(VARIABLE) else {
        return eprintln!("{VARIABLE} does not say where the test device is");
    };
    assert!(Command::new("insmod").arg(device).status().unwrap().success());
    {
        let space = Space::reserve(8 * REGION as usize);
        let start = space.start.next_multiple_of(REGION);
        let file = File::options().read(true).write(true).open("/dev/mega-pfnmap").unwrap();
        let map = |at: u64, regions: u64, flags: i32, fd: i32| {
            let (length, access) = ((regions * REGION) as usize, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: over a part of the reserved address space, which nobody else uses.
            let got = unsafe { libc::mmap(at as *mut libc::c_void, length, access, flags | libc::MAP_FIXED, fd, 0) };
            assert_eq!(got as u64, at);
        };
        map(start, 4, libc::MAP_SHARED, file.as_raw_fd());
        map(start + 4 * REGION, 1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        for region in 0..5 {
            // SAFETY: mapped above. There is no such memory: reads are all ones.
            unsafe { ((start + region * REGION) as *const u8).read_volatile() };
        }
        // SAFETY: mapped above.
        unsafe { ((start + 4 * REGION) as *mut u8).write_volatile(1) };
        let us = mega_linux::sys::pidfd_open(std::process::id()).unwrap();
        let how = Ageing {
            clear: true,
            flush: true,
            young: true,
            take: true,
        };
        let (mut regions, mut maps) = (Vec::new(), Vec::new());
        module
            .age(
                us.as_fd(),
                start..start + 5 * REGION,
                how,
                4096,
                &mut regions,
                Some(&mut maps),
            )
            .unwrap();
        let huge = regions.iter().filter(|seen| seen.flags & uapi::REGION_HUGE != 0);
        assert!(huge.count() <= 1, "{regions:?}");
        assert_eq!(regions.len(), 1, "{regions:?}");
        assert_eq!(regions[0].address, start + 4 * REGION);
        assert!(regions[0].accessed > 0);
    }
    assert!(Command::new("rmmod").arg("pfnmap").status().unwrap().success());
}
