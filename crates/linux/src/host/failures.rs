//! Errors of managed processes: each said once for a process and kind of error, and counted after that.

use std::collections::{BTreeMap, BTreeSet};

/// Errors by kind and process, each said once, and counted after that.
#[derive(Debug, Default)]
pub struct Failures {
    said: BTreeMap<String, BTreeSet<u32>>,
}

/// Processes named for one kind of error; a thousand with the same one are as good as these.
const NAMED_MAX: usize = 16;

impl Failures {
    /// The line for this error, unless this process has had it or enough others have.
    pub fn note(&mut self, pid: u32, kind: String, text: impl FnOnce() -> String) -> Option<String> {
        let pids = self.said.entry(kind).or_default();
        if pids.len() >= NAMED_MAX || !pids.insert(pid) {
            return None;
        }
        Some(match pids.len() {
            NAMED_MAX => format!(
                "{} (as for {} others: further ones are only counted)",
                text(),
                NAMED_MAX - 1
            ),
            _ => text(),
        })
    }

    /// Forgets a process that is no more.
    pub fn forget(&mut self, pid: u32) {
        self.said.retain(|_, pids| {
            // A full set stays: it says that this kind has been said enough.
            if pids.len() < NAMED_MAX {
                pids.remove(&pid);
            }
            !pids.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_said_for_each_process_and_kind_and_a_flood_of_them_is_counted() {
        let mut failures = Failures::default();
        let mut say = |pid, kind: &str| failures.note(pid, kind.into(), || format!("{pid} {kind}"));
        assert_eq!(say(1, "EIO").as_deref(), Some("1 EIO"));
        assert_eq!(say(1, "EIO"), None);
        assert_eq!(
            say(2, "EIO").as_deref(),
            Some("2 EIO"),
            "another process with the same error"
        );
        assert_eq!(
            say(1, "EMFILE").as_deref(),
            Some("1 EMFILE"),
            "another error of the same process"
        );
        let said = (3..1000).filter(|pid| say(*pid, "EIO").is_some()).count();
        assert_eq!(said, NAMED_MAX - 2);
        failures.forget(1);
        assert!(
            failures.note(1, "EMFILE".into(), String::new).is_some(),
            "its PID is another one's now"
        );
    }
}
