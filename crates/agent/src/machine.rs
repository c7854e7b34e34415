//! What the machine and its owner allow: the settings of huge pages, free blocks, and limits of control groups.

use mega_range::span::{PAGE, REGION};
use mega_range::world::Faults;

use crate::sys;
use crate::text::{contains, decimal, Path, Text};

/// Free blocks below which a fault of 2 MB would soon have to compact: 256 MB.
const BLOCKS: u64 = (256 << 20) / REGION;
/// Levels of control groups that are looked at.
const LEVELS: usize = 8;

/// Open files, read again and again.
pub struct Machine {
    program: i32,
    enabled: Option<i32>,
    defrag: Option<i32>,
    buddyinfo: Option<i32>,
    statm: Option<i32>,
    schedstat: Option<i32>,
    loadavg: Option<i32>,
    processors: u64,
    crowd: u32,
    levels: [Level; LEVELS],
    faults: Faults,
    is_compacting: bool,
    is_short: bool,
    left: Option<u64>,
    waited: Waited,
    busy_until_ns: u64,
    crowded_until_ns: u64,
    settings_at_ns: u64,
    limits_at_ns: u64,
}

/// Resident memory in bytes.
#[derive(Clone, Copy)]
pub struct Resident {
    pub bytes: u64,
    /// That of no file.
    pub anonymous: u64,
    /// Pages mapped, and those of them that are private and writable: they change where mappings do, save for a few.
    pub mapped: [u64; 2],
}

/// A control group whose memory is limited.
#[derive(Clone, Copy)]
struct Level {
    limits: [Option<i32>; 2],
    usage: Option<i32>,
}

const NO_LEVEL: Level = Level {
    limits: [None; 2],
    usage: None,
};
const SETTINGS_NS: u64 = 5_000_000_000;
const LIMITS_NS: u64 = 20_000_000;
/// Where control groups have less left, that is looked at each time: a program fills 200 MB in 20 ms.
const LITTLE: u64 = 1 << 30;

/// How long the helper has waited for a processor, and how many times it got one.
#[derive(Clone, Copy)]
struct Waited {
    ns: u64,
    times: u64,
}

/// A wait for a processor from which on none is spare: where one is, the helper gets it within 0.1 ms.
const BUSY_NS: u64 = 250_000;
/// So many waits are judged together.
const BUSY_TIMES: u64 = 8;
/// Looks that found more runnable threads than processors, less those that did not.
const CROWD: u32 = 3;
/// How long that counts: busy programs pause.
const BUSY_FOR_NS: u64 = 1_000_000_000;

/// Whether THP is switched off for the program except where advised (6.18): then `always` means `madvise`.
fn is_except_advised() -> bool {
    // SAFETY: asks only. 3 is the flag with the exception.
    unsafe { sys::prctl(sys::PR_GET_THP_DISABLE, 0) == Ok(3) }
}

impl Machine {
    pub const fn new() -> Self {
        Machine {
            program: 0,
            enabled: None,
            defrag: None,
            buddyinfo: None,
            statm: None,
            schedstat: None,
            loadavg: None,
            processors: 0,
            crowd: 0,
            levels: [NO_LEVEL; LEVELS],
            faults: Faults::Never,
            is_compacting: false,
            is_short: false,
            left: None,
            waited: Waited { ns: 0, times: 0 },
            busy_until_ns: 0,
            crowded_until_ns: 0,
            settings_at_ns: 0,
            limits_at_ns: 0,
        }
    }

    /// Opens what there is; what there is not limits nothing. None without the program's resident memory.
    pub fn begin(&mut self, program: i32) -> Option<()> {
        *self = Machine::new();
        self.program = program;
        let open = |path: &[u8]| sys::open(path, sys::O_RDONLY | sys::O_CLOEXEC).ok();
        self.statm = Some(open(b"/proc/self/statm\0")?);
        self.schedstat = open(b"/proc/thread-self/schedstat\0");
        self.loadavg = open(b"/proc/loadavg\0");
        // Where they cannot be counted, there are enough.
        self.processors = u64::MAX;
        if let Some(online) = open(b"/sys/devices/system/cpu/online\0") {
            let mut buffer = [0u8; 1024];
            let counted = sys::pread(online, &mut buffer, 0).map_or(0, count);
            self.processors = if counted > 0 { counted } else { u64::MAX };
            sys::close(online);
        }
        self.enabled = open(b"/sys/kernel/mm/transparent_hugepage/enabled\0");
        self.defrag = open(b"/sys/kernel/mm/transparent_hugepage/defrag\0");
        self.buddyinfo = open(b"/proc/buddyinfo\0");
        if let Some(groups) = open(b"/proc/self/cgroup\0") {
            self.open_groups(groups);
            sys::close(groups);
        }
        self.read_settings();
        // Its first time on a processor says nothing: a new process waits for its parent's.
        self.waited = waited(self.schedstat).unwrap_or(self.waited);
        Some(())
    }

    fn open_groups(&mut self, groups: i32) {
        let mut buffer = [0u8; 2048];
        let Ok(text) = sys::pread(groups, &mut buffer, 0) else {
            return;
        };
        let mut lines = Text(text);
        let mut next = 0;
        while !lines.is_over() {
            let mut line = Text(lines.until(b'\n'));
            let (_number, controllers, group) = (line.until(b':'), line.until(b':'), line.0);
            let (root, limit, high, usage): (&[u8], &[u8], &[u8], &[u8]) = match controllers {
                b"" => (b"/sys/fs/cgroup", b"/memory.max", b"/memory.high", b"/memory.current"),
                b"memory" => (
                    b"/sys/fs/cgroup/memory",
                    b"/memory.limit_in_bytes",
                    b"/memory.soft_limit_in_bytes.none",
                    b"/memory.usage_in_bytes",
                ),
                _ => continue,
            };
            // From the group up to the root; in a namespace of its own the root is the group.
            let mut group = group.strip_suffix(b"/").unwrap_or(group);
            loop {
                let open = |name: &[u8]| {
                    let path = Path::of(&[root, group, name])?;
                    sys::open(path.bytes(), sys::O_RDONLY | sys::O_CLOEXEC).ok()
                };
                let level = Level {
                    limits: [open(limit), open(high)],
                    usage: open(usage),
                };
                if level.usage.is_some() {
                    let Some(place) = self.levels.get_mut(next) else { return };
                    *place = level;
                    next += 1;
                }
                let Some(parent) = group.iter().rposition(|&byte| byte == b'/') else {
                    break;
                };
                group = group.get(..parent).unwrap_or(&[]);
            }
        }
    }

    fn read_settings(&mut self) {
        let mut buffer = [0u8; 128];
        self.faults = match read(self.enabled, &mut buffer) {
            Some(text) if contains(text, b"[never]") => Faults::Never,
            Some(text) if contains(text, b"[always]") => match is_except_advised() {
                true => Faults::Advised,
                false => Faults::Always,
            },
            _ => Faults::Advised,
        };
        let defrag = read(self.defrag, &mut buffer).unwrap_or(&[]);
        self.is_compacting = !contains(defrag, b"[never]") && !contains(defrag, b"[defer]");
    }

    /// The program's resident memory.
    pub fn resident(&self) -> Option<Resident> {
        let mut buffer = [0u8; 128];
        let mut words = Text(read(self.statm, &mut buffer)?);
        let size = decimal(words.word())?;
        let (all, shared) = (decimal(words.word())?, decimal(words.word())?);
        let _text_and_libraries = (words.word(), words.word());
        let data = decimal(words.word())?;
        Some(Resident {
            bytes: all.saturating_mul(PAGE),
            anonymous: all.saturating_sub(shared).saturating_mul(PAGE),
            mapped: [size, data],
        })
    }

    /// For how long the program has run, on all processors together.
    pub fn program_ns(&self) -> u64 {
        sys::processor_ns_of(self.program)
    }

    /// Looks again at what may have changed.
    pub fn look(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.settings_at_ns) > SETTINGS_NS {
            self.settings_at_ns = now_ns;
            self.read_settings();
        }
        if now_ns.saturating_sub(self.limits_at_ns) > LIMITS_NS {
            self.limits_at_ns = now_ns;
            self.look_at_waits(now_ns);
            self.look_at_load(now_ns);
            self.is_short = self.is_compacting && self.free_blocks().is_some_and(|blocks| blocks < BLOCKS);
            self.left = self.left_now();
        } else if self.left.is_some_and(|left| left < LITTLE) {
            self.left = self.left_now();
        }
    }

    fn look_at_waits(&mut self, now_ns: u64) {
        let Some(waited) = waited(self.schedstat) else { return };
        let times = waited.times.saturating_sub(self.waited.times);
        if times >= BUSY_TIMES {
            let ns = waited.ns.saturating_sub(self.waited.ns);
            self.waited = waited;
            if ns / times > BUSY_NS {
                self.busy_until_ns = now_ns.saturating_add(BUSY_FOR_NS);
            }
        }
    }

    /// A helper that gets a processor at once, since its time slices are short, may have taken it from somebody.
    fn look_at_load(&mut self, now_ns: u64) {
        let mut buffer = [0u8; 128];
        let Some(text) = read(self.loadavg, &mut buffer) else {
            return;
        };
        // 0.20 0.18 0.12 3/80 11206: three threads are runnable, of which this is one.
        let mut words = Text(text);
        let _means = (words.word(), words.word(), words.word());
        let Some(running) = decimal(Text(words.word()).until(b'/')) else {
            return;
        };
        if running <= self.processors {
            self.crowd = self.crowd.saturating_sub(1);
            return;
        }
        self.crowd = (self.crowd + 1).min(2 * CROWD);
        if self.crowd >= CROWD {
            self.crowded_until_ns = now_ns.saturating_add(BUSY_FOR_NS);
        }
    }

    /// Whether there is more to run at this moment than there are processors.
    pub fn is_crowded(&self, now_ns: u64) -> bool {
        now_ns < self.crowded_until_ns
    }

    /// Whether the helper has to wait for a processor at this moment.
    pub fn is_busy(&self, now_ns: u64) -> bool {
        now_ns < self.busy_until_ns
    }

    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Whether a huge page's fault may have to compact.
    pub fn is_short_of_blocks(&self) -> bool {
        self.is_short
    }

    fn left_now(&self) -> Option<u64> {
        self.levels.iter().filter_map(Level::left).min()
    }

    /// What control groups have left up to their limits.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// Free blocks of all zones, in regions.
    fn free_blocks(&self) -> Option<u64> {
        const ORDER: u32 = REGION.trailing_zeros() - PAGE.trailing_zeros();
        let mut buffer = [0u8; 4096];
        let mut lines = Text(read(self.buddyinfo, &mut buffer)?);
        let mut blocks = 0u64;
        while !lines.is_over() {
            // Node 0, zone   Normal   12 3 …: the counts by order.
            let mut line = Text(lines.until(b'\n'));
            let _node_and_zone = (line.until(b','), line.word(), line.word());
            let mut order = 0;
            while !line.is_over() {
                let Some(count) = decimal(line.word()) else { continue };
                if order >= ORDER {
                    blocks = blocks.saturating_add(count.saturating_mul(1 << (order - ORDER).min(16)));
                }
                order += 1;
            }
        }
        Some(blocks)
    }
}

impl Level {
    fn left(&self) -> Option<u64> {
        let limit = self.limits.iter().filter_map(|&limit| number(limit)).min()?;
        Some(limit.saturating_sub(number(self.usage)?))
    }
}

fn read(fd: Option<i32>, buffer: &mut [u8]) -> Option<&[u8]> {
    sys::pread(fd?, buffer, 0).ok()
}

fn number(fd: Option<i32>) -> Option<u64> {
    let mut buffer = [0u8; 32];
    decimal(Text(read(fd, &mut buffer)?).until(b'\n'))
}

/// How many numbers there are in a list such as `0-3,8`.
fn count(list: &[u8]) -> u64 {
    let mut ranges = Text(list);
    let mut count = 0u64;
    while !ranges.is_over() {
        let mut range = Text(ranges.until(b','));
        let first = decimal(Text(range.until(b'-')).until(b'\n'));
        let last = decimal(Text(range.0).until(b'\n')).or(first);
        if let (Some(first), Some(last)) = (first, last) {
            count = count.saturating_add(last.saturating_sub(first).saturating_add(1));
        }
    }
    count
}

/// Time run, time waited, times run: none where the kernel does not count them.
fn waited(schedstat: Option<i32>) -> Option<Waited> {
    let mut buffer = [0u8; 128];
    let mut words = Text(read(schedstat, &mut buffer)?);
    let _run = words.word();
    let ns = decimal(words.word())?;
    let times = decimal(Text(words.word()).until(b'\n'))?;
    Some(Waited { ns, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_whatever_the_list_is() {
        let lists: [&[u8]; 7] = [b"0-1\n", b"0-3,8\n", b"0\n", b"0-2,4-7,9", b"", b"\n", b"x,3-1,-"];
        assert_eq!(lists.map(count), [2, 5, 1, 8, 0, 0, 1]);
    }
}
