//! Touching reserved hugetlb pages, so that the host backs them before a program gets them.

use super::MemoryError;

/// Maps this many free pages of this size, writes to each, and unmaps them.
///
/// The kernel clears them again for the next user. Above a hugetlb limit of its control group the process gets SIGBUS.
///
/// # Errors
/// When there are not enough free pages.
pub fn touch_hugetlb(page_bytes: usize, pages: usize) -> Result<(), MemoryError> {
    let failed = |source| MemoryError {
        call: "mmap",
        start: 0,
        bytes: page_bytes.saturating_mul(pages),
        source,
    };
    let Some(len) = page_bytes.checked_mul(pages).filter(|len| *len > 0) else {
        return Err(failed(std::io::Error::from_raw_os_error(libc::EINVAL)));
    };
    // The kernel reads the size from six bits of the flags.
    let size = (page_bytes.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(failed(std::io::Error::last_os_error()));
    }
    for page in 0..pages {
        // SAFETY: inside the mapping, which nobody else knows of.
        unsafe { start.cast::<u8>().add(page * page_bytes).write_volatile(1) };
    }
    // SAFETY: the whole of the mapping, to which there are no references.
    unsafe { libc::munmap(start, len) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_and_nothing_at_all_are_refused() {
        assert_eq!(touch_hugetlb(2 << 20, 0).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(touch_hugetlb(2 << 20, usize::MAX).unwrap_err().errno(), libc::EINVAL);
        // 32 TB of them are nowhere free. A kernel without hugetlb says EINVAL or ENOSYS.
        assert!(touch_hugetlb(2 << 20, 1 << 24).is_err());
    }
}
