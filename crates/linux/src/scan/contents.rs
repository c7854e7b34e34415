//! Zero-filled base pages by `process_vm_readv`, for the scanners that cannot read through the direct map. It sets
//! accessed bits, which those scanners cannot see.

use super::maps::gone_or;
use super::raw::{self, monotonic_ns};
use super::{ScanError, ZeroFilled, BASE_BYTES, BASE_PAGES};
use crate::deadline;

/// Bytes at the beginning of each base page that mostly show that it is in use.
const HEAD: usize = 64;

/// Counts the zero-filled base pages of one region.
pub(super) fn read(pid: i32, address: u64, huge: bool) -> Result<ZeroFilled, ScanError> {
    let found = ZeroFilled {
        address,
        ..ZeroFilled::default()
    };
    match huge {
        true => super::within(pid, deadline::CALL, move || read_huge(pid, found)),
        false => Ok(found),
    }
}

fn read_huge(pid: i32, mut found: ZeroFilled) -> Result<ZeroFilled, ScanError> {
    let begin = monotonic_ns();
    let address = found.address;
    let at = |page: usize| address + page as u64 * BASE_BYTES;
    let pieces: Vec<(u64, usize)> = (0..usize::from(BASE_PAGES)).map(|page| (at(page), HEAD)).collect();
    let mut heads = vec![0u8; HEAD * pieces.len()];
    let n = raw::read_memory(pid, &pieces, &mut heads).map_err(gone_or("process_vm_readv"))?;
    found.checked = (n / HEAD) as u16;
    found.raced = found.checked < BASE_PAGES;
    let mut page = vec![0u8; BASE_BYTES as usize];
    for (i, head) in heads[..n / HEAD * HEAD].chunks_exact(HEAD).enumerate() {
        if head.iter().all(|&b| b == 0) {
            let n = raw::read_memory(pid, &[(at(i), page.len())], &mut page).map_err(gone_or("process_vm_readv"))?;
            found.zero_filled += u16::from(n == page.len() && page.iter().all(|&b| b == 0));
        }
    }
    found.time_ns = monotonic_ns() - begin;
    Ok(found)
}
