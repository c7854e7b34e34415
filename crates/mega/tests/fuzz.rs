//! Parsers of what the kernel, users and other programs give: readers of /proc and /sys, options, layouts, state files. None may panic or take
//! more memory than a parser needs. The daemon's configuration is beside its reader (`src/service/fuzz.rs`), journals, traces and scenarios are
//! in the simulator's `fuzz`.
//!
//! `FUZZ_SECONDS` says for how long (3 s each by default), `FUZZ_SEED` from which input on. Seeds are the files of the machine that runs this.

#[path = "../../../tests/fuzz/harness.rs"]
mod harness;

use std::fs;
use std::path::Path;

use harness::{fuzz, mutate, Dice};
use mega_core::action::Outcome;
use mega_core::compaction::planner;
use mega_core::observe::Region;
use mega_core::units::{parse_duration, Bytes, Share, Time};
use mega_linux::knobs::{Claims, FaultSize, Knobs};
use mega_linux::proc::{self, ProcRoot};
use memomania_layout::layout::Layout;
use memomania_layout::{file, page, status, wire};

/// What of the machine's own files there is, or else something like it.
fn seeds(path: &str, made_up: &str) -> Vec<Vec<u8>> {
    let mut text = fs::read(path).unwrap_or_default();
    // Long files tell no more than short ones, and take their time.
    text.truncate(6000);
    vec![text, made_up.as_bytes().to_vec()]
}

type Parse = fn(&Path, &[u8]);

/// One of these readers and what it gets.
fn readers(name: &str, list: &[(&str, &str, Parse)]) {
    let all: Vec<(Vec<Vec<u8>>, Parse)> = list
        .iter()
        .map(|(path, made_up, parse)| (seeds(path, made_up), *parse))
        .collect();
    let words = [
        " kB",
        "0x",
        "-",
        "Node 0, zone",
        "VmFlags: rd hg",
        "(",
        ")",
        ":",
        "\t",
        "max",
        "avg10=",
        "18446744073709551616",
        "[heap]",
        "0::/",
    ];
    // The reader is the first byte.
    let make = |dice: &mut Dice| {
        let which = dice.below(all.len());
        let mut input = vec![which as u8];
        input.extend(mutate(dice, &all[which].0, &words));
        input
    };
    fuzz(name, make, |input| {
        if let Some((which, text)) = input.split_first() {
            (all[usize::from(*which) % all.len()].1)(Path::new("f"), text);
        }
    });
}

#[test]
fn files_of_processes() {
    readers(
        "files_of_processes",
        &[
            (
                "/proc/self/stat",
                "7 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 9 4096 1",
                |p, t| {
                    let _ = proc::stat::parse(p, t);
                },
            ),
            (
                "/proc/self/status",
                "Name:\tx\nUid:\t0\t0\t0\t0\nTHP_enabled:\t1\n",
                |p, t| {
                    let _ = proc::status::parse(p, t);
                },
            ),
            (
                "/proc/self/maps",
                "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 [anon: x]\n",
                |p, t| {
                    let _ = proc::maps::parse(p, t);
                },
            ),
            (
                "/proc/self/smaps",
                "0-1000 rw-p 0 00:00 0\nRss: 4 kB\nVmFlags: rd wr\n",
                |p, t| {
                    let _ = proc::smaps::parse(p, t);
                },
            ),
            (
                "/proc/self/smaps_rollup",
                "0-1000 ---p 0 00:00 0 [rollup]\nRss: 4 kB\n",
                |p, t| {
                    let _ = proc::smaps::parse_rollup(p, t);
                },
            ),
            ("/proc/self/cgroup", "4:memory:/job\n0::/a/b.service\n", |p, t| {
                let _ = proc::cgroup::parse(p, t);
            }),
            ("/proc/self/task/none", "1 2 3 4000000 ", |p, t| {
                let _ = proc::task::parse_children(p, t);
            }),
        ],
    );
}

#[test]
fn files_of_the_machine() {
    readers(
        "files_of_the_machine",
        &[
            ("/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 1 kB\n", |p, t| {
                let _ = proc::meminfo::parse(p, t);
            }),
            (
                "/proc/buddyinfo",
                "Node 0, zone Normal 1 2 3 4 5 6 7 8 9 10 11\n",
                |p, t| {
                    if let Ok(free) = proc::buddyinfo::parse(p, t) {
                        let _ = (free.free_blocks(), free.free_blocks_of(0), free.has_nodes());
                    }
                },
            ),
            (
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 3 kB\nNode 0 Active(file): 1 kB\n",
                |p, t| {
                    if let Ok(node) = proc::node::parse(p, t) {
                        let _ = node.available_bytes();
                    }
                },
            ),
            ("/proc/vmstat", "compact_stall 1\nthp_fault_alloc 3\n", |p, t| {
                let _ = proc::vmstat::parse(p, t);
            }),
            (
                "/proc/zoneinfo",
                "Node 0, zone Normal\n  pages free 1\n        min 1\n",
                |p, t| {
                    let _ = proc::zoneinfo::parse(p, t);
                },
            ),
            ("/proc/cpuinfo", "processor\t: 0\nflags\t: pse\n", |p, t| {
                let _ = proc::cpuinfo::parse(p, t);
            }),
            ("/proc/iomem", "00000000-00000fff : System RAM\n", |p, t| {
                let _ = proc::iomem::parse(p, t);
            }),
            (
                "/sys/kernel/debug/extfrag/extfrag_index",
                "Node 0, zone Normal -1.000 0.5\n",
                |p, t| {
                    let _ = proc::extfrag::parse(p, t);
                },
            ),
            (
                "/proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
                |p, t| {
                    let _ = proc::pressure::parse(p, t);
                },
            ),
            (
                "/proc/self/mountinfo",
                "30 20 0:25 / /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n",
                |p, t| {
                    let _ = proc::mountinfo::parse(p, t);
                },
            ),
        ],
    );
}

#[test]
fn sizes_times_shares_and_names() {
    let seeds: Vec<Vec<u8>> = [
        "4K",
        "1.5G",
        "2M",
        "18446744073709551615",
        "90%",
        "0.5%",
        "12.3456%",
        "500ms",
        "5s",
        "1h",
        "7ns",
        "0x200000",
        "failed(EIO)",
        "ineligible(mlock)",
        "demand/floor=2G",
        "mega",
        "2M=64M",
        "1G=4G",
        "64K",
        "base",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    let words = ["K", "G", "%", "ms", "e9", ".", "-", "0x", "=", "/", "µs", "T", "1e308"];
    fuzz(
        "sizes_times_shares_and_names",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let text = String::from_utf8_lossy(input);
            if let Ok(bytes) = text.parse::<Bytes>() {
                assert!(!bytes.to_string().is_empty());
            }
            if let Ok(share) = text.parse::<Share>() {
                assert!(share.fraction() >= 0.0 && share.fraction().is_finite());
            }
            let _ = (
                parse_duration(&text),
                text.parse::<Time>(),
                text.parse::<Region>(),
                text.parse::<Outcome>(),
            );
            let _ = (
                mega_cli::args::parse_interval(&text),
                mega_cli::args::parse_budget(&text),
            );
            let _ = (mega_cli::mosaic::parse_reserve(&text), text.parse::<FaultSize>());
            let _ = planner::from_text(&text);
        },
    );
}

#[test]
fn layouts() {
    let seeds: Vec<Vec<u8>> = [
        "4K,2M@64M+1G,1G",
        "2M:thp",
        "1G@0+4G,2M",
        "heap = { layout = \"2M\", size = \"8G\" }\nfallback = \"smaller\"\nfork = \"copy\"\ndemote = false\n",
        "[anon]\nlayout = \"1G@1G+2G\"\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into_iter()
    .chain([wire::encode(&memomania_layout::settings::Settings::default()).into_bytes()])
    .collect();
    let words = [
        "2M",
        "1G",
        "@",
        "+",
        ",",
        ";",
        "2M:thp",
        "ffffffffffffffff",
        "\"",
        "[heap]",
        "size = ",
    ];
    fuzz(
        "layouts",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let text = String::from_utf8_lossy(input);
            let _ = (
                Layout::parse(&text),
                page::Kind::parse(&text),
                wire::decode(&text).is_ok(),
            );
            if let Err(error) = file::parse("f", &text) {
                assert!(!error.to_string().is_empty());
            }
            // A status in another program's memory, which says what it likes.
            let memory = input;
            let _ = status::decode(0, |address, to: &mut [u8]| {
                let from = usize::try_from(address).unwrap_or(usize::MAX);
                for (n, byte) in to.iter_mut().enumerate() {
                    *byte = from.checked_add(n).and_then(|at| memory.get(at)).copied().unwrap_or(0);
                }
                Ok::<(), ()>(())
            });
        },
    );
}

/// What programs say of themselves, and what is kept of that.
#[test]
fn pages_and_profiles() {
    let mut page = vec![0; mega_range::page::BYTES];
    page[..8].copy_from_slice(&mega_range::page::MAGIC.to_le_bytes());
    page[8..16].copy_from_slice(&mega_range::page::VERSION.to_le_bytes());
    let profile =
        b"mega-profile 1\ndense 23\nsparse 1\nholes 300\nresident 369098752\nruns 3\nused 1795690513\nname sort\n";
    let seeds = vec![profile.to_vec(), page];
    let words = [
        "mega-profile 1\n",
        "dense ",
        "sparse ",
        "holes ",
        "4294967295",
        "\n",
        " ",
        "-1",
    ];
    fuzz(
        "pages_and_profiles",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            if let Ok(page) = mega_range::page::Page::read(input) {
                for field in mega_range::page::Field::ALL {
                    let _ = page.get(*field);
                }
            }
            if let Some(density) = mega_range::profile::density(input) {
                let prior = density.as_prior();
                assert!(prior.dense.max(prior.sparse) <= 32, "{density:?}");
                assert!(density.waste(1 << 40) <= 1 << 40, "{density:?}");
            }
        },
    );
}

/// A state folder with one file that a manager has left which is gone, over a made-up /sys.
#[test]
fn state_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = ProcRoot::under(folder.path());
    fs::create_dir_all(&root.sys).unwrap();
    let (knob, bystander) = (root.sys.join("knob"), root.sys.join("bystander"));
    let state = folder.path().join("run");
    fs::write(&knob, "old\n").unwrap();
    let mut knobs = Knobs::open(root.clone(), &state).unwrap();
    knobs.set(&knob, "new").unwrap();
    let file = fs::read_dir(state.join("knobs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // Its PID's next process was started later.
    let valid = fs::read_to_string(&file)
        .unwrap()
        .replace("\"start_ticks\": ", "\"start_ticks\": 9");
    knobs.restore().unwrap();
    drop(knobs);
    let claim = "{\"pid\": 1, \"start_ticks\": 1, \"manager\": {\"pid\": 1, \"start_ticks\": 1, \"boot\": \"x\"}}";
    let seeds = vec![valid.clone().into_bytes(), claim.as_bytes().to_vec()];
    let words = [
        "\"ours\"",
        "null",
        "bystander",
        "..",
        "/",
        "{",
        "}",
        "[",
        "\"count\": true",
        "\"schema\": 2",
    ];
    let (kind, other) = (state.join("knobs/7-7-0.json"), state.join("claims/1-1.json"));
    fuzz(
        "state_files",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            fs::write(&knob, "new\n").unwrap();
            fs::write(&bystander, "untouched\n").unwrap();
            fs::write(&kind, input).unwrap();
            fs::write(&other, input).unwrap();
            let mut knobs = Knobs::open(root.clone(), &state).unwrap();
            let _ = knobs.recover();
            let _ = Claims::open(&state).unwrap().list();
            let says = fs::read_to_string(&bystander).unwrap();
            let is_named = input.windows(9).any(|part| part == b"bystander");
            assert!(
                is_named || says == "untouched\n",
                "a setting that no file names is {says:?}"
            );
            for kind in ["knobs", "claims"] {
                for file in fs::read_dir(state.join(kind)).unwrap() {
                    fs::remove_file(file.unwrap().path()).unwrap();
                }
            }
        },
    );
    // The seed is a state that is put back.
    fs::write(&knob, "new\n").unwrap();
    fs::write(&kind, valid).unwrap();
    Knobs::open(root, &state).unwrap().recover().unwrap();
    assert_eq!(fs::read_to_string(&knob).unwrap().trim(), "old");
}
