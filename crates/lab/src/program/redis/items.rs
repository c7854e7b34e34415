//! Keys with values of many sizes, and the requests about them.

use mega_sim::workload::pattern::item_bytes;
use redis::Value;

use crate::program::redis::keys::Keys;
use crate::program::redis::{cmd, RedisError};

/// The hash of the hash scenario.
pub(super) const HASH: &str = "hash";

/// Approximate bytes of a batch of requests and of its answers: replies queued in the server's buffers would distort its memory.
const BATCH_BYTES: u64 = 128 << 10;

/// Bytes of the server for a key, beside its value: table entry, object, the key itself, its part of the table.
const KEY_BYTES: u64 = 100;

/// A set of keys with values of a size each, uniform in a range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Items {
    /// Number of keys.
    pub count: u64,
    /// Least and most bytes of a value.
    pub value_bytes: (u64, u64),
    /// Seed of sizes and values.
    pub seed: u64,
}

/// Bytes that jemalloc, Redis's allocator, gives for `bytes`: four classes in each doubling.
fn class_bytes(bytes: u64) -> u64 {
    let bytes = bytes.max(128);
    let step = (bytes - 1).ilog2() - 2;
    bytes.div_ceil(1 << step) << step
}

impl Items {
    /// Item `i` as one of [`Keys`] of its size.
    fn keys(&self, i: u64) -> Keys {
        let (least, most) = self.value_bytes;
        let value_bytes = item_bytes(self.seed, i, least, most);
        Keys {
            count: self.count,
            value_bytes: value_bytes as usize,
            seed: self.seed,
        }
    }

    /// Mean bytes of a value.
    pub fn mean_bytes(&self) -> u64 {
        (self.value_bytes.0 + self.value_bytes.1) / 2
    }

    /// Estimated memory of the server for all of them.
    pub fn server_bytes(&self) -> u64 {
        // A value is stored behind a header of up to 9 bytes and before a zero byte.
        self.count * (class_bytes(self.mean_bytes() + 10) + KEY_BYTES)
    }

    /// Requests per batch, so that they and their answers stay small.
    pub fn batch(&self) -> usize {
        (BATCH_BYTES / self.mean_bytes().max(1)).clamp(1, 256) as usize
    }

    /// Appends a SET of item `i`.
    pub fn set(&self, i: u64, packed: &mut Vec<u8>) {
        let value = self.keys(i).value(i);
        cmd("SET").arg(Keys::name(i)).arg(value).write_packed_command(packed);
    }

    /// Appends a GET of item `i`.
    pub fn get(i: u64, packed: &mut Vec<u8>) {
        cmd("GET").arg(Keys::name(i)).write_packed_command(packed);
    }

    /// Appends a DEL of item `i`.
    pub fn del(i: u64, packed: &mut Vec<u8>) {
        cmd("DEL").arg(Keys::name(i)).write_packed_command(packed);
    }

    /// Appends an HSET of item `i`.
    pub fn hset(&self, i: u64, packed: &mut Vec<u8>) {
        let value = self.keys(i).value(i);
        cmd("HSET").arg(HASH).arg(i).arg(value).write_packed_command(packed);
    }

    /// Appends an HDEL of item `i`.
    pub fn hdel(i: u64, packed: &mut Vec<u8>) {
        cmd("HDEL").arg(HASH).arg(i).write_packed_command(packed);
    }

    /// Whether a value looks like that of item `i`: its length and its first word.
    pub fn looks_right(&self, i: u64, value: &[u8]) -> bool {
        self.keys(i).looks_right(i, value)
    }

    /// Compares a whole value with that of item `i`.
    pub fn compare(&self, i: u64, value: &[u8]) -> Result<(), RedisError> {
        let right = self.keys(i).value(i);
        if value == right {
            return Ok(());
        }
        let at = value.iter().zip(&right).position(|(a, b)| a != b);
        let (found, length) = (value.len(), right.len());
        let at = at.map_or("in its length".into(), |at| format!("at byte {at}"));
        Err(RedisError::Corrupt(format!(
            "key:{i} differs {at}, {found} bytes of {length}"
        )))
    }

    /// Checks the answer to a GET of item `i`, which must be there if `present`.
    pub fn check(&self, i: u64, present: bool, answer: &Value) -> Result<(), RedisError> {
        match (present, answer) {
            (true, Value::BulkString(value)) => self.compare(i, value),
            (false, Value::Nil) => Ok(()),
            (true, Value::Nil) => Err(RedisError::Corrupt(format!("key:{i} is missing"))),
            (false, Value::BulkString(_)) => Err(RedisError::Corrupt(format!("key:{i} is present after deletion"))),
            (_, other) => Err(unexpected("GET", other)),
        }
    }
}

/// An unexpected answer.
pub(super) fn unexpected(command: &'static str, answer: &Value) -> RedisError {
    let answer = format!("{answer:?}").chars().take(120).collect();
    RedisError::Answer { command, answer }
}

/// The answer must be OK.
pub(super) fn ok(command: &'static str, answer: &Value) -> Result<(), RedisError> {
    match answer {
        Value::Okay => Ok(()),
        other => Err(unexpected(command, other)),
    }
}

/// The answer must be 1: one was added, or removed.
pub(super) fn one(command: &'static str, answer: &Value) -> Result<(), RedisError> {
    match answer {
        Value::Int(1) => Ok(()),
        other => Err(unexpected(command, other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: Items = Items {
        count: 1000,
        value_bytes: (256, 16 << 10),
        seed: 5,
    };

    #[test]
    fn sizes_stay_in_their_range_and_their_mean_is_in_its_middle() {
        let sizes: Vec<u64> = (0..1000).map(|i| ITEMS.keys(i).value_bytes as u64).collect();
        assert!(sizes.iter().all(|s| (256..=16 << 10).contains(s)));
        let mean = sizes.iter().sum::<u64>() / 1000;
        assert!((7_800..8_800).contains(&mean), "{mean}");
        assert_eq!(ITEMS.mean_bytes(), 8320);
        let one_size = Items {
            value_bytes: (64, 64),
            ..ITEMS
        };
        assert!((0..100).all(|i| one_size.keys(i).value_bytes == 64));
    }

    #[test]
    fn the_allocators_classes_are_four_in_each_doubling() {
        // 4 KB with its header no longer fits the class of 4 KB.
        assert_eq!(
            [1, 128, 129, 4096, 4106, 8202].map(class_bytes),
            [128, 128, 160, 4096, 5120, 10240]
        );
    }

    #[test]
    fn a_wrong_value_a_lost_one_and_one_that_came_back_are_found() {
        let mut value = ITEMS.keys(7).value(7);
        assert!(ITEMS.check(7, true, &Value::BulkString(value.clone())).is_ok());
        assert!(ITEMS.check(7, false, &Value::Nil).is_ok());
        assert!(ITEMS
            .check(7, true, &Value::Nil)
            .unwrap_err()
            .to_string()
            .contains("is missing"));
        let back = ITEMS.check(7, false, &Value::BulkString(value.clone()));
        assert!(back.unwrap_err().to_string().contains("after deletion"));
        value[9] ^= 1;
        let wrong = ITEMS.check(7, true, &Value::BulkString(value)).unwrap_err();
        assert!(wrong.to_string().contains("at byte 9"), "{wrong}");
    }
}
