//! Where a running process keeps what it would report, for others who may read its memory.
//!
//! The library maps a private page of a memory file named [`NAME`], so that the page is found in `/proc/PID/maps` and belongs to each forked
//! child alone; it begins with these words, little or big endian as the machine is:
//!
//! ```text
//! word    0         1 to 3                 4 to 6                     7
//!         MAGIC     bytes of each pool     address of each Usage      address of the counters, EVENTS words
//! ```
//!
//! A pool that is not there has 0 bytes. What the addresses lead to changes while it is read, and nothing read is to be trusted: the
//! program may write there, too.

use crate::map::Usage;
use crate::report::{Pool, EVENTS};

/// The memory file's name.
pub const NAME: &std::ffi::CStr = c"memomania";
/// That mapping's name there.
pub const MAPPING: &str = "/memfd:memomania";
/// The first word; changes with the meaning of the others.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memoman1");
/// Words of the status.
pub const WORDS: usize = 8;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The status as words.
pub fn encode(pools: &[Option<(usize, &Usage)>; 3], counters: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = MAGIC;
    for (index, pool) in pools.iter().enumerate() {
        if let Some((bytes, usage)) = pool {
            words[1 + index] = *bytes as u64;
            words[4 + index] = std::ptr::from_ref(*usage) as u64;
        }
    }
    words[7] = counters as u64;
    words
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let place = bytes.get(index * WORD..(index + 1) * WORD);
    place.map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

/// A process's pools and counts, with `read(address, bytes)` that fills all bytes from its memory, or says why not; `start` is where the
/// status begins. None: this is no status of our version.
///
/// # Errors
/// Those of `read`.
#[allow(clippy::type_complexity)]
pub fn decode<E>(
    start: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<([Option<Pool>; 3], [usize; EVENTS])>, E> {
    let mut status = [0; WORDS * WORD];
    read(start, &mut status)?;
    if word(&status, 0) != MAGIC {
        return Ok(None);
    }
    let mut pools = [None; 3];
    for (index, pool) in pools.iter_mut().enumerate() {
        let reserved = word(&status, 1 + index);
        if reserved == 0 {
            continue;
        }
        let mut bytes = [0; size_of::<Usage>()];
        read(word(&status, 4 + index), &mut bytes)?;
        let numbers = |field: usize| std::array::from_fn(|kind| word(&bytes, field * 4 + kind) as usize);
        *pool = Some(Pool {
            reserved_bytes: reserved as usize,
            usage: Usage {
                used: numbers(0),
                peak: numbers(1),
                live: numbers(2),
                live_peak: numbers(3),
            },
        });
    }
    let mut bytes = [0; EVENTS * WORD];
    read(word(&status, 7), &mut bytes)?;
    Ok(Some((pools, std::array::from_fn(|event| word(&bytes, event) as usize))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own memory, for the addresses that these tests hand out.
    fn read(ranges: &[(u64, &[u8])], address: u64, bytes: &mut [u8]) -> Result<(), u64> {
        let found = ranges.iter().find_map(|(start, all)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            all.get(at..at.checked_add(bytes.len())?)
        });
        bytes.copy_from_slice(found.ok_or(address)?);
        Ok(())
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_is_wrong_is_not_believed() {
        let usage = Usage {
            used: [1, 2, 3, 4],
            peak: [5, 6, 7, 8],
            live: [0, 0, 9, 10],
            live_peak: [0, 0, 11, 12],
        };
        let counts: Vec<u64> = (100..100 + EVENTS as u64).collect();
        let mut words = encode(&[None, Some((4096, &usage)), None], 0x2000);
        let fields = [usage.used, usage.peak, usage.live, usage.live_peak];
        let usage_words: Vec<u64> = fields.iter().flatten().map(|n| *n as u64).collect();
        let (counts_bytes, usage_bytes) = (bytes_of(&counts), bytes_of(&usage_words));
        let at = words[5];
        let status = bytes_of(&words);
        let memory: [(u64, &[u8]); 3] = [(0x1000, &status), (at, &usage_bytes), (0x2000, &counts_bytes)];
        let (pools, counted) = decode(0x1000, |address, bytes| read(&memory, address, bytes))
            .unwrap()
            .unwrap();
        let pool = Pool {
            reserved_bytes: 4096,
            usage,
        };
        assert_eq!(pools, [None, Some(pool), None]);
        assert_eq!(counted.map(|n| n as u64).to_vec(), counts);

        words[7] = u64::MAX;
        let status = bytes_of(&words);
        let memory: [(u64, &[u8]); 2] = [(0x1000, &status), (at, &usage_bytes)];
        assert_eq!(
            decode(0x1000, |address, bytes| read(&memory, address, bytes)),
            Err(u64::MAX)
        );
        let zeros = [0; 64];
        assert_eq!(
            decode(0x1000, |address, bytes| read(&[(0x1000, &zeros)], address, bytes)),
            Ok(None)
        );
    }
}
