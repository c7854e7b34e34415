//! The server's memory: items in a dictionary, their parts from jemalloc.

use super::dict::{self, Dict};
use super::jemalloc::{Jemalloc, Object};
use super::mix;
use crate::workload::{pace, Memory, ProgramError, PAGE};

/// A reply larger than this is built in memory of its own (PROTO_REPLY_CHUNK_BYTES).
const REPLY: u64 = 16 << 10;
/// Bytes of an object (`robj`).
const OBJECT: u64 = 16;
/// A reply's block before its data.
const REPLY_HEAD: u64 = 16;

/// Bytes of a string of this length with its header and its zero byte (sds.h).
const fn sds_bytes(length: u64) -> u64 {
    let header = match length {
        0..32 => 1,
        32..256 => 3,
        256..65_536 => 5,
        65_536..4_294_967_296 => 9,
        _ => 17,
    };
    header + length + 1
}

/// What is stored under a key.
#[derive(Debug, Clone, Copy)]
struct Item {
    entry: Object,
    key: Object,
    /// The object around the value; fields of a hash have none.
    object: Option<Object>,
    value: Object,
}

/// The server's memory.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) heap: Jemalloc,
    dict: Dict,
    items: Vec<Option<Item>>,
    keys_bytes: u64,
}

impl Server {
    /// An empty one with room for `keys` items.
    pub(super) fn new<M: Memory>(memory: &mut M, keys: u64, decay_ns: u64, seed: u64) -> Result<Self, ProgramError> {
        let mut heap = Jemalloc::new(decay_ns, seed);
        let dict = Dict::new(memory, &mut heap, mix(seed))?;
        // `key:N` with the digits of the largest N.
        let keys_bytes = sds_bytes(4 + u64::from(keys.max(2).ilog10()) + 1);
        Ok(Self {
            heap,
            dict,
            items: vec![None; keys as usize],
            keys_bytes,
        })
    }

    /// Touches every page of an object once.
    fn pages<M: Memory>(memory: &mut M, object: Object, bytes: u64, write: bool) {
        let end = object.address + bytes.max(1);
        let mut at = object.address;
        while at < end {
            memory.touch(at, write);
            at = (at / PAGE + 1) * PAGE;
        }
        memory.work(bytes * pace::COPY_PAGE / PAGE);
    }

    /// Looks key `i` up.
    fn find<M: Memory>(&self, memory: &mut M, i: u64) -> Option<Item> {
        self.dict.find(memory, i as u32, |e| {
            self.items[e as usize]
                .as_ref()
                .map(|it| (it.entry.address, it.key.address))
        });
        self.items[i as usize]
    }

    /// A value, written, and the object around it.
    fn new_value<M: Memory>(
        &mut self,
        memory: &mut M,
        bytes: u64,
        hash: bool,
    ) -> Result<(Object, Option<Object>), ProgramError> {
        let value = self.heap.allocate(memory, sds_bytes(bytes))?;
        Self::pages(memory, value, sds_bytes(bytes), true);
        if hash {
            return Ok((value, None));
        }
        let object = self.heap.allocate(memory, OBJECT)?;
        memory.touch(object.address, true);
        Ok((value, Some(object)))
    }

    /// Stores a value of `bytes` under key `i`; the old one goes.
    pub(super) fn set<M: Memory>(
        &mut self,
        memory: &mut M,
        i: u64,
        bytes: u64,
        hash: bool,
    ) -> Result<(), ProgramError> {
        let (value, object) = self.new_value(memory, bytes, hash)?;
        if let Some(old) = self.find(memory, i) {
            memory.touch(old.entry.address + 8, true);
            self.heap.free(memory, old.value)?;
            if let Some(object) = old.object {
                self.heap.free(memory, object)?;
            }
            self.items[i as usize] = Some(Item { value, object, ..old });
            return Ok(());
        }
        let key = self.heap.allocate(memory, self.keys_bytes)?;
        memory.touch(key.address, true);
        let entry = self.heap.allocate(memory, dict::ENTRY)?;
        memory.touch(entry.address, true);
        self.items[i as usize] = Some(Item {
            entry,
            key,
            object,
            value,
        });
        self.dict.insert(memory, &mut self.heap, i as u32, |e| {
            self.items[e as usize].as_ref().map_or(0, |it| it.entry.address)
        })?;
        Ok(())
    }

    /// Reads the value of key `i`, of `bytes`, into a reply; nothing when it is not there.
    pub(super) fn get<M: Memory>(&mut self, memory: &mut M, i: u64, bytes: u64) -> Result<(), ProgramError> {
        let Some(item) = self.find(memory, i) else {
            return Ok(());
        };
        if let Some(object) = item.object {
            memory.touch(object.address, false);
        }
        Self::pages(memory, item.value, sds_bytes(bytes), false);
        if bytes > REPLY {
            let reply = self.heap.allocate(memory, bytes + REPLY_HEAD)?;
            Self::pages(memory, reply, bytes + REPLY_HEAD, true);
            self.heap.free(memory, reply)?;
        }
        Ok(())
    }

    /// Deletes key `i`, if it is there.
    pub(super) fn delete<M: Memory>(&mut self, memory: &mut M, i: u64) -> Result<(), ProgramError> {
        let Some(item) = self.find(memory, i) else {
            return Ok(());
        };
        let items = &self.items;
        self.dict.remove(memory, i as u32, |e| {
            items[e as usize].as_ref().map_or(0, |it| it.entry.address)
        });
        self.items[i as usize] = None;
        for object in [Some(item.entry), Some(item.key), item.object, Some(item.value)]
            .into_iter()
            .flatten()
        {
            self.heap.free(memory, object)?;
        }
        Ok(())
    }
}
