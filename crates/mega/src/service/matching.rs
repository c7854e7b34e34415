//! Which rule each process of the machine is under: the first that matches it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mega_core::units::BASE_PAGE_BYTES;
use mega_linux::proc::{cgroup, stat, status, task, ProcRoot};
use mega_linux::process::same_memory;
use mega_linux::process::tasks::{Task, TaskTable};
use mega_linux::sys::User;

use super::figures::Place;
use super::glob::Glob;
use super::read::Rule;

/// The longest name of a service, in characters.
const SERVICE_MAX: usize = 256;
/// Looks for which a process that has neither run another program nor changed its name is taken to be under the same rule: its control group and
/// user may change all the same.
const GOOD_FOR: u32 = 12;

/// What the rules ask about a process.
#[derive(Debug, Default, Clone)]
pub struct Facts {
    /// Its name.
    pub comm: String,
    /// Its executable's path.
    pub exe: String,
    /// Its control group: v2, or systemd's own.
    pub cgroup: String,
    /// Its real user's number, and name if there is one.
    pub user: [String; 2],
}

impl Facts {
    fn fits(&self, key: &str, glob: &Glob) -> bool {
        match key {
            "comm" => glob.matches(&self.comm),
            "exe" => glob.matches(&self.exe),
            "cgroup" => glob.matches(&self.cgroup),
            "user" => self.user.iter().any(|name| glob.matches(name)),
            "unit" => self
                .cgroup
                .split('/')
                .filter(|part| part.contains('.'))
                .any(|part| glob.matches(part)),
            _ => false,
        }
    }
}

/// The first rule that matches.
pub fn first(rules: &[Rule], facts: &Facts) -> Option<usize> {
    rules
        .iter()
        .position(|rule| rule.patterns.iter().all(|(key, glob)| facts.fits(key, glob)))
}

/// A process under a rule.
#[derive(Debug, Clone)]
pub struct Matched {
    /// The rule's number.
    pub rule: usize,
    /// Its name.
    pub comm: String,
    /// Its control group.
    pub cgroup: String,
    /// Its resident memory.
    pub resident: u64,
    /// It is too small for the rule.
    pub is_small: bool,
}

impl Matched {
    /// Where it belongs, for metrics and the journal; long names are cut.
    pub fn place(&self, rule: &str) -> Place {
        let service = cgroup::service(&self.cgroup);
        Place {
            rule: rule.to_owned(),
            service: service.chars().take(SERVICE_MAX).collect(),
        }
    }
}

/// All processes with their rules, looked for at most so often, for all loops.
pub struct Matching {
    root: ProcRoot,
    rules: Vec<Rule>,
    age: Duration,
    seen: Mutex<Seen>,
}

/// What looks have found.
#[derive(Default)]
struct Seen {
    last: Option<(Instant, BTreeMap<u32, Matched>)>,
    looks: u32,
    known: BTreeMap<u32, Known>,
}

/// A process as the table of all shows it, and the rule that it was found under then.
struct Known {
    start_ticks: u64,
    space: u64,
    comm: String,
    /// The look that asks again.
    until: u32,
    matched: Option<Matched>,
}

impl Known {
    fn is_good(&self, task: &Task, look: u32) -> bool {
        look < self.until && self.start_ticks == task.start_ticks && self.space == task.space && self.comm == task.comm
    }
}

impl Matching {
    /// By these rules; a look is good for this time.
    pub fn new(rules: Vec<Rule>, age: Duration) -> Self {
        Self {
            root: ProcRoot::default(),
            rules,
            age,
            seen: Mutex::new(Seen::default()),
        }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The processes that a rule matches, but those that have the memory of their parent, which counts once: an agent's helper, a child of
    /// vfork. Where there is a table of all, only those are read of /proc that are new in it, or changed.
    ///
    /// # Errors
    /// /proc cannot be listed.
    pub fn look(&self, table: Option<&TaskTable>) -> Result<BTreeMap<u32, Matched>, String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has no table is told what those with one have seen: they look once in an interval.
        let is_kept = table.is_none() && seen.looks > 0;
        if let Some((_, found)) = seen
            .last
            .as_ref()
            .filter(|(when, _)| is_kept || when.elapsed() < self.age)
        {
            return Ok(found.clone());
        }
        let mut found = BTreeMap::new();
        let mut users = BTreeMap::new();
        if let Some(table) = table {
            seen.looks += 1;
            let look = seen.looks;
            let mut known = BTreeMap::new();
            // An agent's helper and a child of vfork have the memory of their parent: it counts once.
            let has_own =
                |task: &&Task| !task.is_kernel_thread() && !task.is_over() && !table.is_shared(task.pid, task.parent);
            for task in table.iter().filter(has_own) {
                let before = seen.known.remove(&task.pid).filter(|known| known.is_good(task, look));
                let mut now = before.unwrap_or_else(|| Known {
                    start_ticks: task.start_ticks,
                    space: task.space,
                    comm: task.comm.clone(),
                    // Else all would be asked at the same look.
                    until: look + GOOD_FOR - task.pid % (GOOD_FOR / 2),
                    matched: self.process(task.pid, &mut users),
                });
                if let Some(matched) = &mut now.matched {
                    matched.resident = task.resident_pages * BASE_PAGE_BYTES;
                    let least = self.rules.get(matched.rule).map_or(0, |rule| rule.min_resident().0);
                    matched.is_small = matched.resident < least;
                    found.insert(task.pid, matched.clone());
                }
                known.insert(task.pid, now);
            }
            seen.known = known;
            seen.last = Some((Instant::now(), found.clone()));
            return Ok(found);
        }
        for pid in task::processes(&self.root).map_err(|error| error.to_string())? {
            // One that ends meanwhile, or that we may not see, is none of ours.
            let matched = self.process(pid, &mut users);
            let parent = || stat::read(&self.root, pid).map_or(0, |stat| stat.ppid);
            found.extend(
                matched
                    .filter(|_| !same_memory(pid, parent()))
                    .map(|matched| (pid, matched)),
            );
        }
        seen.last = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    fn process(&self, pid: u32, users: &mut BTreeMap<u32, [String; 2]>) -> Option<Matched> {
        let stat = stat::read(&self.root, pid).ok()?;
        if pid == std::process::id() || stat.is_kernel_thread() || stat.is_over() {
            return None;
        }
        let uid = status::read(&self.root, pid)
            .ok()?
            .uid
            .map_or(u32::MAX, |(real, _)| real);
        let number = uid.to_string();
        let user = users.entry(uid).or_insert_with(|| {
            let name = User::find(&number).map_or_else(|| number.clone(), |user| user.name);
            [number, name]
        });
        let exe = std::fs::read_link(self.root.of_process(pid, "exe")).ok();
        let facts = Facts {
            exe: exe
                .map(|path| path.to_string_lossy().trim_end_matches(" (deleted)").to_owned())
                .unwrap_or_default(),
            cgroup: cgroup::own(&self.root, pid),
            user: user.clone(),
            comm: stat.comm,
        };
        let rule = first(&self.rules, &facts)?;
        Some(Matched {
            rule,
            comm: facts.comm,
            cgroup: facts.cgroup,
            resident: stat.rss_bytes,
            is_small: stat.rss_bytes < self.rules.get(rule)?.min_resident().0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::read::read;
    use std::path::Path;

    #[test]
    fn the_first_rule_all_of_whose_patterns_fit_decides() {
        let text = "[[rule]]\nmatch = { unit = \"redis\", user = \"nobody\" }\n[[rule]]\nmatch = { cgroup = \"/system.slice/**\" }\n\
                    [[rule]]\nmatch = { exe = \"/usr/bin/*\" }\n[[rule]]\nmatch = { user = \"100?\" }\n";
        let (contents, wrong) = read(Path::new("f"), text);
        assert!(wrong.is_empty(), "{wrong:?}");
        let at = |cgroup: &str, exe: &str, uid: &str, name: &str| {
            let facts = Facts {
                comm: "x".to_owned(),
                exe: exe.to_owned(),
                cgroup: cgroup.to_owned(),
                user: [uid.to_owned(), name.to_owned()],
            };
            first(&contents.rules, &facts)
        };
        assert_eq!(at("/system.slice/redis.service/worker", "/x", "99", "nobody"), Some(0));
        assert_eq!(at("/system.slice/redis.service", "/x", "0", "root"), Some(1));
        assert_eq!(at("/user.slice", "/usr/bin/x", "0", "root"), Some(2));
        assert_eq!(at("/user.slice", "/usr/bin/y/x", "1001", "me"), Some(3));
        assert_eq!(at("/user.slice", "/usr/bin/y/x", "0", "root"), None);
    }
}
