//! Keys `key:N` with values derived from N and a seed, so that any of them can be verified at any time.

use super::{Connection, RedisError};
use crate::memory::content::{mix, word};
use redis::Value;

/// Commands per round trip.
const BATCH: u64 = 128;

/// A set of keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// Number of keys: `key:0` to `key:count-1`.
    pub count: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Seed of the values.
    pub seed: u64,
}

/// What [`Keys::verify`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Keys with the right value.
    pub present: u64,
    /// Keys that are absent as expected.
    pub absent: u64,
}

/// Whether key `i` is among the `share` that [`Keys::delete_random`] with this seed deletes.
#[must_use]
pub fn is_deleted(i: u64, share: f64, seed: u64) -> bool {
    (mix(seed ^ mix(i)) as f64) < share * 2f64.powi(64)
}

impl Keys {
    /// The name of key `i`.
    #[must_use]
    pub fn name(i: u64) -> String {
        format!("key:{i}")
    }

    /// The value of key `i`.
    #[must_use]
    pub fn value(&self, i: u64) -> Vec<u8> {
        let seed = mix(self.seed ^ i);
        let words = self.value_bytes.div_ceil(8) as u64;
        let mut bytes = Vec::with_capacity(words as usize * 8);
        (0..words).for_each(|w| bytes.extend_from_slice(&word(seed, w).to_le_bytes()));
        bytes.truncate(self.value_bytes);
        bytes
    }

    /// Whether `bytes` have the length and the first word of key `i`'s value: cheap enough for a load.
    #[must_use]
    pub fn looks_right(&self, i: u64, bytes: &[u8]) -> bool {
        let first = word(mix(self.seed ^ i), 0).to_le_bytes();
        let n = self.value_bytes.min(8);
        bytes.len() == self.value_bytes && bytes[..n] == first[..n]
    }

    /// Sends `command` for each of `keys` in batches and passes each answer to `look`.
    fn batches(
        connection: &mut Connection,
        keys: impl Iterator<Item = u64>,
        command: impl Fn(u64) -> redis::Cmd,
        mut look: impl FnMut(u64, Value) -> Result<(), RedisError>,
    ) -> Result<(), RedisError> {
        let mut keys = keys.peekable();
        let mut packed = Vec::new();
        while keys.peek().is_some() {
            let batch: Vec<u64> = keys.by_ref().take(BATCH as usize).collect();
            packed.clear();
            batch
                .iter()
                .for_each(|i| packed.extend_from_slice(&command(*i).get_packed_command()));
            connection.send_packed_command(&packed)?;
            for i in batch {
                look(i, connection.recv_response()?)?;
            }
        }
        Ok(())
    }

    /// Sets all keys.
    ///
    /// # Errors
    /// When Redis refuses one.
    pub fn load(&self, connection: &mut Connection) -> Result<(), RedisError> {
        let set = |i| {
            let mut c = redis::cmd("SET");
            c.arg(Self::name(i)).arg(self.value(i));
            c
        };
        Self::batches(connection, 0..self.count, set, |_, answer| match answer {
            Value::Okay => Ok(()),
            other => Err(RedisError::Answer {
                command: "SET",
                answer: format!("{other:?}"),
            }),
        })
    }

    /// Gets every key and compares: those for which `expected` is true must have their value, the others must be absent.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn verify(&self, connection: &mut Connection, expected: impl Fn(u64) -> bool) -> Result<Verified, RedisError> {
        let mut verified = Verified { present: 0, absent: 0 };
        let get = |i| {
            let mut c = redis::cmd("GET");
            c.arg(Self::name(i));
            c
        };
        Self::batches(connection, 0..self.count, get, |i, answer| {
            match (expected(i), answer) {
                (true, Value::BulkString(bytes)) => {
                    let right = self.value(i);
                    if bytes != right {
                        let at = bytes.iter().zip(&right).position(|(a, b)| a != b);
                        let (found, len) = (bytes.len(), right.len());
                        let text = format!("key:{i} differs at byte {at:?}, {found} bytes of {len}");
                        return Err(RedisError::Corrupt(text));
                    }
                    verified.present += 1;
                    Ok(())
                }
                (false, Value::Nil) => {
                    verified.absent += 1;
                    Ok(())
                }
                (true, Value::Nil) => Err(RedisError::Corrupt(format!("key:{i} is missing"))),
                (_, other) => {
                    let mut answer = format!("key:{i} {other:?}");
                    answer.truncate(120);
                    Err(RedisError::Answer { command: "GET", answer })
                }
            }
        })?;
        Ok(verified)
    }

    /// Deletes a random `share` (0 to 1) of the keys; returns their number. [`is_deleted`] says which.
    ///
    /// # Errors
    /// When Redis refuses.
    pub fn delete_random(&self, connection: &mut Connection, share: f64, seed: u64) -> Result<u64, RedisError> {
        let mut deleted = 0;
        let delete = |i| {
            let mut c = redis::cmd("DEL");
            c.arg(Self::name(i));
            c
        };
        let keys = (0..self.count).filter(|i| is_deleted(*i, share, seed));
        Self::batches(connection, keys, delete, |_, answer| match answer {
            Value::Int(n) => {
                deleted += u64::try_from(n).unwrap_or(0);
                Ok(())
            }
            other => Err(RedisError::Answer {
                command: "DEL",
                answer: format!("{other:?}"),
            }),
        })?;
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys {
        count: 10,
        value_bytes: 4093,
        seed: 3,
    };

    #[test]
    fn values_have_their_length_and_differ_between_keys() {
        assert_eq!(KEYS.value(1).len(), 4093);
        assert_ne!(KEYS.value(1), KEYS.value(2));
        assert!(KEYS.looks_right(1, &KEYS.value(1)));
        assert!(!KEYS.looks_right(2, &KEYS.value(1)));
        let tiny = Keys { value_bytes: 3, ..KEYS };
        assert!(tiny.looks_right(1, &tiny.value(1)));
    }

    #[test]
    fn about_the_asked_share_is_deleted() {
        let n = (0..10_000).filter(|i| is_deleted(*i, 0.7, 1)).count();
        assert!((6_800..7_200).contains(&n), "{n}");
        assert!((0..100).all(|i| !is_deleted(i, 0.0, 1)));
    }
}
