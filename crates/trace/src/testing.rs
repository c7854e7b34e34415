//! Records of every kind, for property tests. Those of the simulator read this file, too: a feature for it would have all that depends on
//! this crate built twice.

use mega_core::observe::{Can, Machine, Observation, ProcessId, Region, Why};
use mega_core::units::{BasePages, Blocks, Bytes, Share};
use mega_trace::{Advice, Kind, Record, MOST_RUN};
use proptest::prelude::*;

/// Any record that a file can hold.
pub fn any_record() -> impl Strategy<Value = Record> {
    let kind = (0usize..3).prop_map(|i| Kind::ALL[i]);
    let pages = || (0u32..=512).prop_map(BasePages);
    let observation = (
        0u64..1 << 43,
        (pages(), pages(), pages()),
        proptest::option::of(pages()),
        any::<[bool; 7]>(),
        proptest::option::of(proptest::sample::select(&Why::ALL[..])),
    );
    let observation = observation.prop_map(|(region, (mapped, accessed, dirty), zero, flags, why)| {
        let [huge, shared, raced, aged, promote, demote, age] = flags;
        let can = Can {
            promote,
            demote,
            age,
            why,
        };
        Observation {
            region: Region(region),
            mapped,
            accessed,
            dirty,
            zero,
            kept: BasePages::ZERO,
            huge,
            shared,
            raced,
            aged,
            can,
        }
    });
    let scan = (any::<[u64; 3]>(), proptest::option::of(0u32..=1_000_000));
    prop_oneof![
        4 => (any::<u64>(), kind.clone()).prop_map(|(address, kind)| Record::Touch { address, kind }),
        2 => (any::<u64>(), any::<i64>(), 1..=MOST_RUN, kind)
            .prop_map(|(address, stride, count, kind)| Record::Run { address, stride, count, kind }),
        1 => any::<u64>().prop_map(Record::Time),
        1 => (any::<u32>(), any::<u64>()).prop_map(|(pid, started)| Record::Process(ProcessId { pid, started })),
        1 => any::<(u64, u64)>().prop_map(|(address, bytes)| Record::Map { address, bytes }),
        1 => any::<(u64, u64)>().prop_map(|(address, bytes)| Record::Unmap { address, bytes }),
        1 => any::<[u64; 4]>()
            .prop_map(|[address, bytes, to, to_bytes]| Record::Remap { address, bytes, to, to_bytes }),
        1 => (any::<(u64, u64)>(), 0usize..6)
            .prop_map(|((address, bytes), i)| Record::Advise { address, bytes, advice: Advice::ALL[i] }),
        1 => any::<u32>().prop_map(Record::Fork),
        1 => any::<u32>().prop_map(Record::Exit),
        1 => any::<u64>().prop_map(Record::Work),
        1 => scan.prop_map(|([a, t, b], p)| Record::Scan(Machine {
            available_bytes: Bytes(a),
            total_bytes: Bytes(t),
            free_blocks: Blocks(b),
            pressure: p.map(Share::millionths),
        })),
        2 => observation.prop_map(Record::Region),
    ]
}
