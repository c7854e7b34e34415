//! The machine that an experiment ran on, and the program that ran it.

use std::collections::BTreeMap;
use std::path::Path;

use mega_linux::proc::{cpuinfo, meminfo, ProcRoot};

use crate::result::Machine;

/// Describes this machine. What cannot be read stays empty.
#[must_use]
pub fn describe(root: &ProcRoot) -> Machine {
    let cpu = cpuinfo::read(root).unwrap_or_default();
    let memory = meminfo::read(root).ok();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Machine {
        kernel: release,
        virtual_machine: cpu.has("hypervisor"),
        processor: cpu.model.unwrap_or_default(),
        processors: cpu.processors,
        memory_bytes: memory.and_then(|m| m.total_bytes).unwrap_or(0),
        thp: thp(root),
        system: system(Path::new("/etc/os-release")),
    }
}

fn thp(root: &ProcRoot) -> BTreeMap<String, String> {
    let names = [
        "enabled",
        "defrag",
        "hugepages-64kB/enabled",
        "khugepaged/max_ptes_none",
    ];
    let read = |name: &str| {
        let text = std::fs::read_to_string(root.thp(name)).ok()?;
        Some((name.to_string(), chosen(text.trim()).to_string()))
    };
    names.into_iter().filter_map(read).collect()
}

/// The bracketed word: the selected setting.
fn chosen(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word)
}

fn system(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("").trim_matches('"').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_words_the_one_in_brackets_is_chosen() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("511"), "511");
    }

    #[test]
    fn this_machine_has_a_kernel_a_processor_and_memory() {
        let here = describe(&ProcRoot::default());
        assert!(
            here.processors > 0 && here.memory_bytes > 0 && here.kernel.contains('.'),
            "{here:?}"
        );
    }
}
