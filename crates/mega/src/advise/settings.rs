//! What to set where MEGA is not there: the kernel's, systemd's, allocators', runtimes' and programs' own switches.

use std::collections::BTreeSet;

use serde::Serialize;

use super::verdict::Verdict;

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Where it is set.
    pub place: &'static str,
    /// What to write there.
    pub set: &'static str,
    /// What that does.
    pub effect: &'static str,
}

/// What the program is, by its name and by the files that it has mapped.
struct Program<'a> {
    names: Vec<&'a str>,
    files: &'a BTreeSet<String>,
}

impl Program<'_> {
    fn is(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.starts_with(name))
    }

    fn maps(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.starts_with(name))
    }
}

const SYSTEMD_OFF: Setting = Setting {
    place: "systemd 260, its unit",
    set: "MemoryTHP=disable",
    effect: "base pages only, whatever the machine's setting; before 260, or elsewhere: prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) before exec",
};
const SYSTEMD_ADVISED: Setting = Setting {
    place: "systemd 260, its unit",
    set: "MemoryTHP=madvise",
    effect: "huge pages only where the program asks; elsewhere, from Linux 6.18: prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0)",
};
const GLIBC: Setting = Setting {
    place: "environment (glibc 2.35)",
    set: "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
    effect: "malloc asks for huge pages; needs enabled = madvise or always",
};
const MACHINE: Setting = Setting {
    place: "/sys/kernel/mm/transparent_hugepage/enabled",
    set: "always",
    effect: "huge pages at every fault, for every program on the machine: look at the others first",
};

/// For a verdict on a program.
pub fn settings(verdict: Verdict, name: &str, command: Option<&str>, files: &BTreeSet<String>) -> Vec<Setting> {
    let program = Program {
        names: [Some(name), command].into_iter().flatten().collect(),
        files,
    };
    match verdict {
        Verdict::WorthIt => wanted(&program),
        Verdict::WorthItWhereDense => {
            let mut list = vec![SYSTEMD_ADVISED];
            list.push(Setting {
                place: "the program's source",
                set: "madvise(MADV_HUGEPAGE) on its dense arrays",
                effect: "only what is filled densely gets huge pages",
            });
            list
        }
        Verdict::WouldHurt => unwanted(&program),
        Verdict::DoNotBother | Verdict::HasThem | Verdict::Unknown => Vec::new(),
    }
}

fn wanted(program: &Program<'_>) -> Vec<Setting> {
    let mut list = Vec::new();
    if program.is("redis") || program.is("valkey") {
        list.push(Setting {
            place: "redis.conf",
            set: "disable-thp no",
            effect: "Redis switches THP off for itself by default (6.2); a save by fork then copies 2 MB for each page written",
        });
    }
    if program.maps("libjvm.so") || program.is("java") {
        list.push(Setting {
            place: "java's options",
            set: "-XX:+UseTransparentHugePages",
            effect: "the heap asks for huge pages; with -XX:+AlwaysPreTouch it has them before the first request",
        });
    } else if program.maps("libjemalloc") {
        list.push(Setting {
            place: "environment (jemalloc 5)",
            set: "MALLOC_CONF=thp:always,metadata_thp:auto",
            effect: "jemalloc asks for huge pages; needs enabled = madvise or always",
        });
    } else if program.maps("libtcmalloc") {
        list.push(Setting {
            place: "/sys/kernel/mm/transparent_hugepage",
            set: "enabled=always, khugepaged/max_ptes_none=0",
            effect: "what tcmalloc's authors recommend: it keeps its spans in whole regions, and khugepaged adds nothing to sparse ones",
        });
    } else if program.maps("libc.so.6") || program.maps("libc-2") {
        list.push(GLIBC);
    }
    list.push(MACHINE);
    list
}

fn unwanted(program: &Program<'_>) -> Vec<Setting> {
    let mut list = Vec::new();
    if program.is("redis") || program.is("valkey") {
        list.push(Setting {
            place: "redis.conf",
            set: "disable-thp yes",
            effect: "base pages only (the default)",
        });
    }
    list.push(SYSTEMD_OFF);
    if program.maps("libjvm.so") || program.is("java") {
        list.push(Setting {
            place: "java's options",
            set: "-XX:-UseTransparentHugePages",
            effect: "the heap does not ask for them (the default)",
        });
    } else if program.maps("libjemalloc") {
        list.push(Setting {
            place: "environment (jemalloc 5)",
            set: "MALLOC_CONF=thp:never",
            effect: "jemalloc asks for none, and has its memory left alone",
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(verdict: Verdict, name: &str, files: &[&str]) -> Vec<&'static str> {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let list = settings(verdict, name, None, &files);
        list.iter().map(|setting| setting.set).collect()
    }

    #[test]
    fn each_program_has_its_own_switch() {
        assert!(sets(Verdict::WorthIt, "redis-server", &[]).contains(&"disable-thp no"));
        assert!(sets(Verdict::WouldHurt, "redis-server", &[]).contains(&"disable-thp yes"));
        assert!(sets(Verdict::WorthIt, "java", &["libjvm.so"]).contains(&"-XX:+UseTransparentHugePages"));
        assert!(sets(Verdict::WorthIt, "x", &["libc.so.6"]).contains(&"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"));
        let jemalloc = sets(Verdict::WorthIt, "x", &["libjemalloc.so.2", "libc.so.6"]);
        assert!(jemalloc.iter().any(|set| set.starts_with("MALLOC_CONF=thp:always")));
        assert!(
            !jemalloc.iter().any(|set| set.starts_with("GLIBC")),
            "it has another malloc"
        );
    }

    #[test]
    fn harm_is_switched_off_for_one_program_and_nothing_is_set_where_nothing_is_gained() {
        assert_eq!(sets(Verdict::WouldHurt, "x", &[]), ["MemoryTHP=disable"]);
        assert!(sets(Verdict::WorthItWhereDense, "x", &[]).contains(&"MemoryTHP=madvise"));
        assert!(sets(Verdict::DoNotBother, "java", &["libjvm.so"]).is_empty());
    }
}
