//! A real daemon on real processes: rules, reload, crash, status, and what it tells the service manager. Needs root.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value as Json;

const PATIENCE: Duration = Duration::from_secs(60);

fn mega(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_mega"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Killed at the end, however the test ends.
struct Running(Child);

impl Running {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the daemon ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of this name that does nothing for long.
fn service(folder: &Path, name: &str) -> Running {
    let path = folder.join(name);
    if !path.exists() {
        assert!(Command::new("cp")
            .arg("/bin/sleep")
            .arg(&path)
            .status()
            .unwrap()
            .success());
    }
    Running(Command::new(path).arg("600").stdin(Stdio::null()).spawn().unwrap())
}

/// One of this name that holds 64 MB, filled, and waits for somebody to read them.
fn holding(folder: &Path, name: &str, opts_out: bool) -> Running {
    let path = folder.join(name);
    assert!(Command::new("cp").arg("/bin/dd").arg(&path).status().unwrap().success());
    let mut command = Command::new(path);
    if opts_out {
        // SAFETY: a system call between fork and exec, on the child alone.
        unsafe {
            command.pre_exec(|| {
                drop_huge_pages();
                Ok(())
            })
        };
    }
    command.args(["if=/dev/zero", "bs=64M", "count=1"]).stdin(Stdio::null());
    Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// As a program does that wants no huge pages.
fn drop_huge_pages() {
    // SAFETY: changes a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// A control group of a made-up unit; removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let hierarchies = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let folder = hierarchies
            .iter()
            .map(Path::new)
            .find(|folder| folder.join("cgroup.procs").is_file())?;
        let group = folder.join("megatest-unit.service");
        let _ = fs::create_dir(&group);
        group.join("cgroup.procs").is_file().then_some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process was killed before, and may take a moment to leave.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Place {
    folder: tempfile::TempDir,
    config: PathBuf,
    told: UnixDatagram,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            config: folder.path().join("mega.toml"),
            folder,
            told,
        }
    }

    fn write(&self, text: &str) {
        fs::write(&self.config, text).unwrap();
    }

    fn daemon(&self) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
        command
            .args(["daemon", "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        Running(
            command
                .env("NOTIFY_SOCKET", self.folder.path().join("notify"))
                .spawn()
                .unwrap(),
        )
    }

    /// The next message that has this in it.
    fn heard(&self, what: &str) -> String {
        let mut bytes = [0u8; 4096];
        loop {
            let length = self
                .told
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.contains(what) {
                return text;
            }
        }
    }
}

fn status() -> Json {
    let output = mega(&["status", "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the status says of a process: its rule and its state.
fn state(status: &Json, pid: u32) -> Option<(String, String)> {
    let rules = status["rules"].as_array().unwrap();
    let found = rules.iter().flat_map(|rule| {
        let of_rule = rule["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(move |process| (rule, process));
        of_rule.filter(|(_, process)| process["pid"] == pid)
    });
    let found: Vec<_> = found
        .map(|(rule, process)| (text(&rule["name"]), text(&process["state"])))
        .collect();
    assert!(found.len() <= 1, "one rule a process: {found:?}");
    found.into_iter().next()
}

fn text(value: &Json) -> String {
    value.as_str().unwrap().to_owned()
}

fn claimed_by(pid: u32) -> Option<u32> {
    let folder = fs::read_dir("/run/mega/claims").ok()?;
    let claims = folder.filter_map(|entry| fs::read(entry.ok()?.path()).ok());
    let mut claims = claims.filter_map(|text| serde_json::from_slice::<Json>(&text).ok());
    let claim = claims.find(|claim| claim["pid"] == pid)?;
    claim["manager"]["pid"].as_u64().map(|pid| pid as u32)
}

const RULES: &str = r#"
[daemon]
interval = "100ms"
group = "daemon"
journal = "JOURNAL"
[[rule]]
name = "alpha"
match = { comm = "megatest-alpha" }
policy = "mega"
[[rule]]
name = "beta"
match = { exe = "**/megatest-beta" }
policy = "ingens"
[[rule]]
name = "small"
match = { comm = "megatest-small" }
min-resident = "1G"
[[rule]]
name = "unit"
match = { unit = "megatest-unit" }
[[rule]]
name = "large"
match = { comm = "megatest-large" }
policy = "mega"
guarantee = "90%"
stall-budget = "100%"
[[rule]]
name = "opted out"
match = { comm = "megatest-optout" }
policy = "mega"
guarantee = "95%"
[[rule]]
name = "others"
match = { comm = "megatest-*" }
policy = "leave-alone"
"#;

/// The answer to a varlink call.
fn varlink(call: &str) -> Json {
    let mut stream = UnixStream::connect("/run/mega/daemon.sock").unwrap();
    stream.write_all(format!("{call}\0").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
        answer.push(byte[0]);
    }
    serde_json::from_slice(&answer).unwrap()
}

/// Root, and the group of the configuration; others are told so, and floods and silent callers hold up nobody.
fn who_may_ask(folder: &Path) {
    let info = varlink(r#"{"method":"org.varlink.service.GetInfo"}"#);
    assert_eq!(info["parameters"]["interfaces"][1], "mega.Daemon", "{info}");
    if Command::new("varlinkctl").arg("--version").output().is_ok() {
        let said = Command::new("varlinkctl")
            .args(["info", "/run/mega/daemon.sock"])
            .output()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&said.stdout).contains("mega.Daemon"),
            "{said:?}"
        );
    } else {
        eprintln!("SKIPPED: a look by systemd's own varlinkctl: it is not here");
    }
    let silent: Vec<UnixStream> = (0..100)
        .map(|_| UnixStream::connect("/run/mega/daemon.sock").unwrap())
        .collect();
    status();
    drop(silent);
    let copy = folder.join("mega");
    assert!(Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_mega"))
        .arg(&copy)
        .status()
        .unwrap()
        .success());
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(folder);
    open(&copy);
    let ask = |group: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--clear-groups"])
            .arg(format!("--regid={group}"));
        command.arg(&copy).args(["status", "--json"]).output().unwrap()
    };
    let reader = ask("daemon");
    let seen: Json = serde_json::from_slice(&reader.stdout).unwrap_or_else(|error| panic!("{error}: {reader:?}"));
    assert_eq!(seen["kind"], "status");
    let other = ask("65534");
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && other.stdout.is_empty() && said.contains("only root"),
        "{other:?}"
    );
}

/// One after the other: a machine has one daemon.
#[test]
fn the_daemon_does_what_its_rules_say_until_it_is_stopped_or_killed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: managing needs root");
        return;
    }
    let place = Place::new();
    let folder = place.folder.path();

    // A configuration with a mistake does not start.
    place.write("[[rule]]\nmatch = { comm = \"x\" }\npolicy = \"meg\"\n");
    let mut daemon = place.daemon();
    assert_eq!(daemon.ended().code(), Some(1));
    let mut said = String::new();
    daemon.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(
        said.contains("mega.toml:3:10: ") && said.contains("did you mean 'mega'"),
        "{said}"
    );

    let journal = folder.join("journal");
    let rules = RULES.replace("JOURNAL", journal.to_str().unwrap());
    place.write(&rules);
    let alpha = service(folder, "megatest-alpha");
    let other = service(folder, "megatest-other");
    let small = service(folder, "megatest-small");
    let mut daemon = place.daemon();
    assert!(place.heard("READY=1").contains("7 rules"));
    until("alpha is managed", || claimed_by(alpha.pid()) == Some(daemon.pid()));

    // Who follows the journal sees what comes, and by default where the configuration has it.
    let mut following = Command::new(env!("CARGO_BIN_EXE_mega"));
    following.args(["journal", "--follow", "--event", "found", "--rule", "beta", "--config"]);
    following.arg(&place.config).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut following = Running(following.spawn().unwrap());

    // A service that comes later is found; each is under the first rule that matches it.
    let beta = service(folder, "megatest-beta");
    until("beta is managed", || claimed_by(beta.pid()) == Some(daemon.pid()));
    let mut shown = [0u8; 4096];
    let length = following.0.stdout.as_mut().unwrap().read(&mut shown).unwrap();
    let shown = String::from_utf8_lossy(&shown[..length]).into_owned();
    assert!(
        shown.contains(" beta: ") && shown.contains(&format!(": found pid={} ", beta.pid())),
        "{shown}"
    );
    drop(following);
    let now = status();
    let is = |now: &Json, of: &Running, rule: &str, expected: &str| {
        assert_eq!(
            state(now, of.pid()),
            Some((rule.to_owned(), expected.to_owned())),
            "{now}"
        );
    };
    is(&now, &alpha, "alpha", "managed");
    is(&now, &beta, "beta", "managed");
    is(&now, &small, "small", "below min-resident");
    is(&now, &other, "others", "left alone");
    assert_eq!((claimed_by(other.pid()), claimed_by(small.pid())), (None, None));

    // What is managed has figures, by process and by rule; what is left alone has none.
    let large = holding(folder, "megatest-large", false);
    let most = 60 << 20;
    until("what the large one holds is in the status", || {
        let now = status();
        let of_rule = |name| {
            let rules = now["rules"].as_array().unwrap();
            rules.iter().find(|rule| rule["name"] == name).cloned().unwrap()
        };
        let (rule, others) = (of_rule("large"), of_rule("others"));
        assert!(others["mapped_bytes"].is_null(), "{others}");
        let process = &rule["processes"][0];
        let has = |of: &Json, key: &str| of[key].as_u64() >= Some(most);
        has(process, "mapped_bytes")
            && has(&rule, "mapped_bytes")
            && has(&rule, "resident_bytes")
            && process["coverage"].is_f64()
    });
    // 64 MB can be in huge pages, and are, as guaranteed; a program that has opted out cannot, and the reason is said.
    let opted_out = holding(folder, "megatest-optout", true);
    until("the guarantee is kept where it can be, and missed where not", || {
        let now = status();
        let of = |name: &str| {
            let rules = now["rules"].as_array().unwrap();
            rules.iter().find(|rule| rule["name"] == name).cloned().unwrap()
        };
        let missed = of("opted out")["guarantee_missed"].clone();
        let coverage = of("large")["processes"][0]["coverage"].as_f64();
        missed[opted_out.pid().to_string()].is_string() && coverage >= Some(0.9)
    });
    // So it is where one process is asked about.
    let shown = mega(&["show", "--json", &large.pid().to_string(), &small.pid().to_string()]);
    let shown: Json = serde_json::from_slice(&shown.stdout).unwrap();
    let [large_now, small_now] = [0, 1].map(|i| shown["processes"][i]["managed"].clone());
    assert_eq!(large_now["rule"], "large", "{shown}");
    let felt = &large_now["felt"];
    assert!(felt["actions"].as_u64() >= Some(28), "{felt}");
    assert!(felt["longest_ns"].as_u64() > Some(0), "{felt}");
    assert!(small_now.is_null(), "{shown}");
    let shown = mega(&["show", &large.pid().to_string()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("  managed: rule large, policy "), "{shown}");

    let opted_out_pid = opted_out.pid().to_string();
    drop(opted_out);
    drop(large);

    // A service's control group decides, where the machine lets us make one.
    if let Some(group) = Group::new() {
        let member = service(folder, "megatest-member");
        fs::write(group.0.join("cgroup.procs"), member.pid().to_string()).unwrap();
        until("the unit's process is managed", || {
            state(&status(), member.pid()) == Some(("unit".to_owned(), "managed".to_owned()))
        });
    } else {
        eprintln!("SKIPPED: no control group can be made here");
    }

    // The scans of all loops together ping the watchdog.
    place.heard("WATCHDOG=1");
    place.heard("WATCHDOG=1");

    // One that goes is forgotten.
    let gone = beta.pid();
    drop(beta);
    until("beta is forgotten", || {
        state(&status(), gone).is_none() && claimed_by(gone).is_none()
    });

    // A second daemon is refused, and does not disturb the first.
    let mut second = place.daemon();
    assert_eq!(second.ended().code(), Some(1));
    assert_eq!(status()["daemon"], daemon.pid());

    who_may_ask(folder);

    // A bad file is refused, with the place, and what was in force stays so.
    place.write("[daemon]\nintervall = \"1s\"\n");
    daemon.signal(Signal::HUP);
    let reloading = place.heard("RELOADING=1");
    assert!(reloading.lines().any(|line| line
        .strip_prefix("MONOTONIC_USEC=")
        .is_some_and(|n| n.parse::<u64>().is_ok())));
    place.heard("READY=1");
    let now = status();
    assert!(
        text(&now["last_reload_refused"][0]).contains("mega.toml:2:1: "),
        "{now}"
    );
    is(&now, &alpha, "alpha", "managed");
    // So by varlink, with all mistakes.
    let told = varlink(r#"{"method":"mega.Daemon.Reload"}"#);
    assert_eq!(told["parameters"]["accepted"], false, "{told}");
    assert!(
        text(&told["parameters"]["mistakes"][0]).contains("mega.toml:2:1: "),
        "{told}"
    );
    place.heard("READY=1");

    // A good one comes into force.
    place.write(
        &rules
            .replace("\"alpha\"", "\"first\"")
            .replace("policy = \"leave-alone\"", "policy = \"off\""),
    );
    daemon.signal(Signal::HUP);
    place.heard("RELOADING=1");
    place.heard("READY=1");
    until("others are managed", || claimed_by(other.pid()) == Some(daemon.pid()));
    until("alpha is managed under its rule's new name", || {
        state(&status(), alpha.pid()) == Some(("first".to_owned(), "managed".to_owned()))
    });
    assert_eq!(status()["reloads"], 1);

    // Killed: the next one starts, answers, and manages the same processes.
    daemon.signal(Signal::KILL);
    daemon.ended();
    assert!(!mega(&["status"]).status.success(), "nobody answers");
    let mut daemon = place.daemon();
    place.heard("READY=1");
    until("alpha is managed again", || {
        claimed_by(alpha.pid()) == Some(daemon.pid())
    });

    // Stopped: nothing is left, and the programs go on.
    daemon.signal(Signal::TERM);
    place.heard("STOPPING=1");
    assert!(daemon.ended().success());
    assert_eq!((claimed_by(alpha.pid()), claimed_by(other.pid())), (None, None));
    assert!(!Path::new("/run/mega/daemon.sock").exists());

    // One without rules manages nothing, is alive all the same, and `mega off` finds it.
    place.write("[daemon]\njournal = \"off\"\n");
    let mut daemon = place.daemon();
    place.heard("READY=1");
    place.heard("WATCHDOG=1");
    let off = mega(&["off"]);
    assert!(
        off.status.success() && String::from_utf8_lossy(&off.stdout).contains(&daemon.pid().to_string()),
        "{off:?}"
    );
    assert!(daemon.ended().success());

    // The journal has both lives of the daemon, the reloads, and whom it managed under which rule.
    let lines = |arguments: &[&str]| -> Vec<Json> {
        let file = journal.to_str().unwrap();
        let output = mega(&[&["journal", "--json", "--file", file], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(lines(&["--event", "daemon-start"]).len(), 2);
    assert_eq!(lines(&["--event", "daemon-stop"]).len(), 1);
    let reloads = lines(&["--event", "reload"]);
    let results: Vec<_> = reloads.iter().map(|line| text(&line["result"])).collect();
    assert_eq!(results, ["refused", "refused", "accepted"]);
    assert!(text(&reloads[0]["why"]).contains("mega.toml:2:1: "), "{reloads:?}");
    let found = lines(&["--event", "found", "--pid", &alpha.pid().to_string()]);
    let under: Vec<_> = found.iter().map(|line| text(&line["rule"])).collect();
    assert_eq!(under, ["alpha", "first", "first"]);
    assert_eq!(lines(&["-n", "1"]).len(), 1);
    let missed = lines(&["--event", "guarantee", "--pid", &opted_out_pid]);
    assert_eq!(
        (
            &missed[0]["kept"],
            &missed[0]["guarantee_ppm"],
            missed[0]["why"].is_string()
        ),
        (&Json::Bool(false), &Json::from(950_000), true)
    );

    for mut running in [alpha, other, small] {
        assert!(
            running.0.try_wait().unwrap().is_none(),
            "a program has ended with the daemon"
        );
    }
}
