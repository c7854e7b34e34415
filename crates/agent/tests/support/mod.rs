//! Running programs with the agent preloaded.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mega_range::page::{Field, Page};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Held by tests that fill memory: they time themselves, or one another.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library that cargo built with this test, or the one that `MEGA_AGENT_LIBRARY` names.
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("MEGA_AGENT_LIBRARY") {
        return path.into();
    }
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().expect("a test lies in a folder");
    let places = [deps.join("libmega_agent.so"), deps.join("../libmega_agent.so")];
    let found = places.into_iter().filter(|path| path.is_file());
    let newest = found.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    newest
        .expect("libmega_agent.so is not there")
        .canonicalize()
        .expect("its path")
}

/// The test program, compiled; none where there is no compiler.
pub fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/program.c");
        let target = library().with_file_name("agent-test-program");
        let made = Command::new("gcc")
            .args(["-O1", "-Wall", "-pthread", "-o"])
            .arg(&target)
            .arg(source)
            .arg("-ldl")
            .status();
        match made {
            Ok(status) if status.success() => Some(target),
            Ok(status) => panic!("gcc: {status}"),
            Err(_) => {
                eprintln!("skipped: there is no gcc");
                None
            }
        }
    };
    PROGRAM.get_or_init(compile).as_deref()
}

/// Runs something while the machine maps huge pages where that was advised, and nowhere else. Other tests may change the
/// setting meanwhile: what ran under another one is run again. None where it stays another one.
pub fn while_advised<T>(run: impl Fn() -> Option<T>) -> Option<T> {
    let is_advised = || fs::read_to_string(ENABLED).is_ok_and(|enabled| enabled.contains("[madvise]"));
    for _ in 0..10 {
        if is_advised() {
            let ran = run();
            if is_advised() {
                return ran;
            }
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    eprintln!("skipped: {ENABLED} is not madvise");
    None
}

/// Whether this is root.
pub fn is_root() -> bool {
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: not root");
    }
    is_root
}

/// A control group whose memory is limited, version 1 or 2; removed when dropped.
pub struct Group(PathBuf);

impl Group {
    /// In this process's own group. None where that cannot be.
    pub fn limited(bytes: u64) -> Option<Self> {
        let of = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = |list: &str| {
            let mut fields = of.lines().map(|line| line.splitn(3, ':'));
            let field = fields.find_map(|mut fields| (fields.nth(1) == Some(list)).then(|| fields.next()))?;
            Some(field?.trim_start_matches('/').to_owned())
        };
        let places = [
            ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "", "memory.max"),
        ];
        for (root, list, limit) in places {
            let Some(own) = own(list).filter(|_| Path::new(root).is_dir()) else {
                continue;
            };
            let group = Self(
                Path::new(root)
                    .join(own)
                    .join(format!("mega-agent-{}", std::process::id())),
            );
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                let _ = fs::write(group.0.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        eprintln!("skipped: no control group can be limited");
        None
    }

    /// Has a command enter it.
    pub fn enters(&self, command: &mut Command) {
        let processes = self.0.join("cgroup.procs");
        // SAFETY: writes a file and nothing else.
        unsafe { command.pre_exec(move || fs::write(&processes, "0")) };
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// What came of a program with the agent.
pub struct Ran {
    pub output: Output,
    pages: tempfile::TempDir,
}

/// Runs the test program so, with the agent preloaded.
pub fn run(arguments: &[&str]) -> Option<Ran> {
    run_with(arguments, |_| {})
}

/// The same, with something changed about the command.
pub fn run_with(arguments: &[&str], change: impl Fn(&mut Command)) -> Option<Ran> {
    let mut command = Command::new(program()?);
    command.args(arguments);
    change(&mut command);
    Some(preloaded(&mut command))
}

/// Runs a command with the agent preloaded.
pub fn preloaded(command: &mut Command) -> Ran {
    let pages = tempfile::tempdir().expect("a folder for pages");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(pages.path(), open).expect("a folder for all");
    command
        .env("LD_PRELOAD", library())
        .env("MEGA_AGENT_STATUS", pages.path().join("%"));
    let output = command.output().expect("the program starts");
    Ran { output, pages }
}

impl Ran {
    /// Fails if the program did.
    pub fn ok(self) -> Self {
        assert!(
            self.output.status.success(),
            "{}: {}{}",
            self.output.status,
            self.text(),
            String::from_utf8_lossy(&self.output.stderr)
        );
        self
    }

    /// What it wrote.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The figure behind this word of what it wrote.
    pub fn figure(&self, name: &str) -> f64 {
        let text = self.text();
        let mut words = text.split_whitespace();
        words.find(|&word| word == name);
        let word = words.next().unwrap_or_else(|| panic!("no {name} in {text:?}"));
        word.parse().unwrap_or_else(|_| panic!("{name} is {word:?}"))
    }

    /// A field of the agent's pages, the largest of all processes.
    pub fn page(&self, field: Field) -> u64 {
        let files = fs::read_dir(self.pages.path()).expect("the folder of pages");
        let values = files.flatten().map(|file| {
            let bytes = fs::read(file.path()).expect("a page");
            Page::read(&bytes).map_or(0, |page| page.get(field))
        });
        values.max().expect("the agent has left no page")
    }
}

/// Whether this process is there, or is a zombie that its parent would have to reap.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
