//! Memory of our own: base pages at known frames, each with contents of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

pub const PAGE: u64 = 4096;
pub const REGION: u64 = 1 << 21;
const WORDS: u64 = PAGE / 8;

pub struct Memory {
    pub base: u64,
    pub pages: u64,
    mapped: (u64, usize),
    gone: Vec<bool>,
}

impl Memory {
    /// Maps so many 2 MB-aligned regions, without huge pages; nothing is touched.
    pub fn map(regions: u64) -> Memory {
        let len = ((regions + 1) * REGION) as usize;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            // It may be more than there is; what there is not is not touched.
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let memory = Memory {
            base: (at as u64).next_multiple_of(REGION),
            pages: regions * 512,
            mapped: (at as u64, len),
            gone: vec![true; (regions * 512) as usize],
        };
        memory.advise(0..memory.pages, libc::MADV_NOHUGEPAGE);
        memory
    }

    /// Maps and fills, then gives back what is not kept: the study's pattern.
    pub fn fragmented(regions: u64, keep: impl Fn(u64) -> bool) -> Memory {
        let mut memory = Memory::map(regions);
        (0..memory.pages).for_each(|page| memory.fill(page));
        let mut page = 0;
        while page < memory.pages {
            let end = (page..memory.pages).find(|&p| keep(p)).unwrap_or(memory.pages);
            if end > page {
                memory.advise(page..end, libc::MADV_DONTNEED);
                memory.gone[page as usize..end as usize].fill(true);
            }
            page = end + 1;
        }
        memory
    }

    pub fn address(&self, page: u64) -> u64 {
        self.base + page * PAGE
    }

    fn word(&self, page: u64, word: u64) -> *mut u64 {
        assert!(page < self.pages && word < WORDS);
        (self.address(page) + word * 8) as *mut u64
    }

    /// Writes contents that no other page has, at both ends.
    pub fn fill(&mut self, page: u64) {
        for word in [0, WORDS - 1] {
            // SAFETY: inside the mapping.
            unsafe {
                self.word(page, word)
                    .write_volatile((page << 10 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            };
        }
        self.gone[page as usize] = false;
    }

    pub fn touch(&self, page: u64) {
        // SAFETY: inside the mapping.
        unsafe { self.word(page, 1).read_volatile() };
    }

    /// Pages whose contents are not what was written.
    pub fn spoiled(&self) -> usize {
        let there = (0..self.pages).filter(|&page| !self.gone[page as usize]);
        let bad = there.filter(|&page| {
            [0, WORDS - 1].into_iter().any(|word| {
                // SAFETY: inside the mapping.
                let found = unsafe { self.word(page, word).read_volatile() };
                found != (page << 10 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            })
        });
        bad.count()
    }

    pub fn advise(&self, pages: std::ops::Range<u64>, advice: i32) {
        let (at, len) = (self.address(pages.start), (pages.end - pages.start) * PAGE);
        // SAFETY: inside the mapping, which nothing else relies on.
        let error = unsafe { libc::madvise(at as *mut libc::c_void, len as usize, advice) };
        assert_eq!(error, 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    /// Makes the whole of it huge pages.
    pub fn collapse(&mut self) {
        const MADV_COLLAPSE: i32 = 25;
        self.advise(0..self.pages, libc::MADV_HUGEPAGE);
        (0..self.pages).step_by(512).for_each(|page| self.fill(page));
        self.advise(0..self.pages, MADV_COLLAPSE);
    }

    /// Locks pages.
    pub fn lock(&self, pages: std::ops::Range<u64>) {
        let (at, len) = (self.address(pages.start), (pages.end - pages.start) * PAGE);
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { libc::mlock(at as *const libc::c_void, len as usize) }, 0);
    }

    /// The frame of each page that has one.
    pub fn frames(&self) -> BTreeMap<u64, u64> {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut bytes = vec![0u8; self.pages as usize * 8];
        pagemap.read_exact_at(&mut bytes, self.base / PAGE * 8).unwrap();
        let entries = bytes
            .chunks(8)
            .map(|entry| u64::from_le_bytes(entry.try_into().unwrap()));
        let present = (0..).zip(entries).filter(|(_, entry)| entry >> 63 == 1);
        present.map(|(page, entry)| (page, entry & ((1 << 55) - 1))).collect()
    }

    /// Pages by the block that they are in.
    pub fn by_block(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut blocks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (page, frame) in self.frames() {
            blocks.entry(frame / 512).or_default().push(page);
        }
        blocks
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more.
        unsafe { libc::munmap(self.mapped.0 as *mut libc::c_void, self.mapped.1) };
    }
}

/// Pins pages for DMA, as a fixed buffer of an io_uring, until the descriptor is closed. None where the kernel gives no io_uring.
pub fn pin_for_dma(address: u64, bytes: u64) -> Option<OwnedFd> {
    let mut params = [0u32; 30];
    let buffer = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes as usize,
    };
    // SAFETY: 120 bytes of parameters, as it wants; one buffer, whose pages it holds and does nothing with.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
        let ring = (ring >= 0).then(|| OwnedFd::from_raw_fd(ring as i32))?;
        let registered = libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), 0, &buffer, 1);
        (registered == 0).then_some(ring)
    }
}

/// Flags of /proc/kpageflags of a frame.
pub fn page_flags(frame: u64) -> u64 {
    let mut bytes = [0; 8];
    let file = File::open("/proc/kpageflags").unwrap();
    file.read_exact_at(&mut bytes, frame * 8).unwrap();
    u64::from_le_bytes(bytes)
}
