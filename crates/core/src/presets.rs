//! What suits well-known programs: names for a rule's keys, so that nobody has to find them by trying. Each is policy `auto` with an intent
//! and limits; what was measured with which program: docs/presets.md.

/// Keys of a rule under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// As it is written.
    pub name: &'static str,
    /// Whose processes it is for.
    pub programs: &'static str,
    /// What matters for them (parameter `for` of `auto`).
    pub intent: &'static str,
    /// The largest share of time that they may be stalled; none: the intent's own.
    pub stall: Option<&'static str>,
    /// Coverage to be kept.
    pub guarantee: Option<&'static str>,
    /// Smaller processes are left alone.
    pub min_resident: &'static str,
    /// Why so.
    pub why: &'static str,
    /// What the vendor recommends.
    pub vendor: &'static str,
    /// Where.
    pub source: &'static str,
}

impl Preset {
    /// The keys of a rule that it gives, as one would write them; `set` is apart.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let optional = [("stall-budget", self.stall), ("guarantee", self.guarantee)];
        let given = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        [("policy", "auto"), ("min-resident", self.min_resident)]
            .into_iter()
            .chain(given)
    }

    /// The parameters of `auto`.
    pub fn set(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        std::iter::once(("for", self.intent))
    }

    /// The same for a program that one starts oneself.
    pub fn command(&self) -> String {
        let stall = self
            .stall
            .map_or_else(String::new, |share| format!(" --stall-budget {share}"));
        let guarantee = self
            .guarantee
            .map_or_else(String::new, |share| format!(" --set guarantee={share}"));
        format!("mega run --for {}{stall}{guarantee} -- CMD", self.intent)
    }
}

/// The preset of that name.
pub fn by_name(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// All.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "redis",
        programs: "Redis, Valkey, KeyDB",
        intent: "balanced",
        stall: Some("1%"),
        guarantee: None,
        min_resident: "64M",
        why: "One thread answers everybody: the stall budget is small. A fault of 2 MB delays its slowest requests less \
              than the 512 faults that it replaces, so the intent is not `latency`. Start it with `--disable-thp no`, \
              or it forbids huge pages to itself and to us. While a child saves, writes split the huge pages that \
              both share; they are promoted again when it has ended.",
        vendor: "Switch THP off, because of latency and memory use after fork.",
        source: "https://redis.io/docs/latest/operate/oss_and_stack/management/optimization/latency/",
    },
    Preset {
        name: "mongodb",
        programs: "mongod",
        intent: "balanced",
        stall: Some("2%"),
        guarantee: None,
        min_resident: "256M",
        why: "Its cache is used all over and gains; waste in it is what older versions suffered from, and waste is \
              bounded here. Version 8 advises huge pages for itself, which is not overruled.",
        vendor: "Up to 7.0 THP off; from 8.0 `enabled` = always, `defrag` = defer+madvise, `max_ptes_none` = 0.",
        source: "https://www.mongodb.com/docs/manual/tutorial/disable-transparent-huge-pages/",
    },
    Preset {
        name: "postgresql",
        programs: "postgres and its backends",
        intent: "balanced",
        stall: Some("1%"),
        guarantee: None,
        min_resident: "256M",
        why: "`shared_buffers` is shared memory, which is left alone: give it explicit huge pages (`huge_pages = on`). \
              What remains are sorts and hashes of single backends, which gain.",
        vendor: "Explicit huge pages for shared memory; transparent ones are discouraged.",
        source: "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-HUGE-PAGES",
    },
    Preset {
        name: "mariadb",
        programs: "mariadbd, mysqld",
        intent: "balanced",
        stall: Some("2%"),
        guarantee: None,
        min_resident: "256M",
        why: "The buffer pool is private memory, filled densely and used all over. MariaDB from 10.6.17 on forbids \
              itself huge pages once the pool is there, and nobody can promote anything then: `mega status` says so. \
              MySQL does not.",
        vendor: "MariaDB: off after start (MDEV-33279), because memory that huge pages hold is not given back.",
        source: "https://jira.mariadb.org/browse/MDEV-33279",
    },
    Preset {
        name: "jvm",
        programs: "java",
        intent: "balanced",
        stall: None,
        guarantee: None,
        min_resident: "256M",
        why: "The heap is filled from one end to the other, again and again, and gains. Stacks of threads are left \
              alone, with which THP `always` has made JVMs swell. With `-XX:+UseTransparentHugePages` the JVM advises \
              for itself, which is not overruled.",
        vendor: "`enabled` = madvise and -XX:+UseTransparentHugePages.",
        source: "https://wiki.openjdk.org/display/zgc/Main#Main-EnablingTransparentHugePagesOnLinux",
    },
    Preset {
        name: "go",
        programs: "servers written in Go",
        intent: "balanced",
        stall: None,
        guarantee: None,
        min_resident: "128M",
        why: "The heap grows 4 MB at a time, filled densely. The scavenger gives memory back in pieces smaller than \
              2 MB: huge pages fill up such holes again, within the allowance for waste. `for = \"memory\"` fills up \
              none, where that matters more than speed.",
        vendor: "`max_ptes_none` = 0 where memory grows, or THP off for small heaps.",
        source: "https://go.dev/doc/gc-guide#Linux_transparent_huge_pages",
    },
    Preset {
        name: "clickhouse",
        programs: "clickhouse-server",
        intent: "balanced",
        stall: Some("5%"),
        guarantee: None,
        min_resident: "256M",
        why: "Queries take and give back memory through jemalloc: bounded waste matters, and nothing compacts in a \
              query's way.",
        vendor: "Long: THP off, because it interferes with memory allocators.",
        source: "https://clickhouse.com/docs/operations/tips",
    },
    Preset {
        name: "kvm-guest",
        programs: "qemu-system-*, one process a guest",
        intent: "throughput",
        stall: None,
        guarantee: Some("95%"),
        min_resident: "256M",
        why: "Each miss of a guest's TLB walks two page tables, so that guests gain most. QEMU advises huge pages for \
              a guest's memory itself; what is split or fragmented later is put right here, and what the guest has \
              never written is given back, as far as 95 % allows. Where that is missed, an event and a metric say so. \
              Guests on hugetlb or shared memory are left alone.",
        vendor: "Red Hat: THP on for guests, up to 20 % faster.",
        source: "https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/6/html/performance_tuning_guide/ch04s05s02",
    },
    Preset {
        name: "batch",
        programs: "jobs that nobody waits for",
        intent: "throughput",
        stall: None,
        guarantee: None,
        min_resident: "64M",
        why: "Only the time to the end counts: no stall budget.",
        vendor: "None.",
        source: "",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::by_name as policy;

    #[test]
    fn every_preset_is_right_for_its_policy() {
        for preset in PRESETS {
            let mut auto = policy("auto").unwrap();
            for (name, value) in preset.set() {
                auto.set(name, value).unwrap();
            }
            if let Some(share) = preset.guarantee {
                auto.set("guarantee", share).unwrap();
            }
            auto.check().unwrap();
            assert_eq!(by_name(preset.name), Some(preset));
        }
    }

    #[test]
    fn names_are_different() {
        let mut names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
    }
}
