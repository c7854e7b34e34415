//! Two real daemons, Debian's Prometheus and node_exporter: what they export is well-formed, the dashboard's queries have data, the alerts fire on
//! faults and not without. Needs root. Everything listens on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

const PATIENCE: Duration = Duration::from_secs(60);

/// Ended at the end, however the test ends.
struct Running(Child);

impl Running {
    fn of(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Where Debian's programs are: installed, or unpacked here; unpacked nothing of them is started by itself. Every test waits for one unpacking.
fn programs() -> Result<PathBuf, String> {
    static THERE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    THERE.get_or_init(find_or_unpack).clone()
}

fn find_or_unpack() -> Result<PathBuf, String> {
    if Path::new("/usr/bin/promtool").exists() && Path::new("/usr/bin/prometheus-node-exporter").exists() {
        return Ok("/usr/bin".into());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus");
    let (there, complete) = (folder.join("usr/bin"), folder.join("complete"));
    if complete.exists() {
        return Ok(there);
    }
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let get = "timeout 120 apt-get -q download prometheus prometheus-node-exporter && \
               for package in *.deb; do dpkg-deb -x \"$package\" . && rm \"$package\"; done && touch complete";
    let output = Command::new("sh").args(["-c", get]).current_dir(&folder).output();
    match output.map_err(|error| error.to_string())? {
        output if output.status.success() => Ok(there),
        output => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The status, the head and the body.
fn get(mut stream: impl Read + Write, target: &str, accept: &str) -> (u16, String, String) {
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    (status, head.to_owned(), body.to_owned())
}

struct Prometheus(SocketAddr);

impl Prometheus {
    /// The result of a query: the samples.
    fn query(&self, query: &str) -> Vec<Json> {
        let Ok(stream) = TcpStream::connect(self.0) else {
            return Vec::new();
        };
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, _, body) = get(stream, &format!("/api/v1/query?query={escaped}"), "*/*");
        if status == 503 {
            return Vec::new();
        }
        assert_eq!(status, 200, "{query}: {body}");
        // Chunked: the object is from the first brace to the last.
        let json = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        let json: Json = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {body}"));
        json["data"]["result"].as_array().unwrap().clone()
    }
}

/// The expressions of the dashboard, with its variables filled in.
fn expressions() -> Vec<(String, String)> {
    let text = fs::read_to_string(shipped("dashboard.json")).unwrap();
    let dashboard: Json = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let all = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().unwrap().iter();
        targets.map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    all.map(|(title, expr)| {
        let expr = expr
            .replace("$instance", ".*")
            .replace("$rule", ".*")
            .replace("$__rate_interval", "1m");
        (title, expr)
    })
    .collect()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus")).join(name)
}

fn promtool(programs: &Path, args: &[&str], input: Option<&str>) {
    let mut command = Command::new(programs.join("promtool"));
    command.args(args).current_dir(shipped(""));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.unwrap_or_default().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    // It also says on standard error what it would have named otherwise.
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "promtool {args:?}: {output:?}"
    );
}

/// A daemon that has a state folder of its own, as on a machine of its own.
struct Machine {
    daemon: Running,
    address: SocketAddr,
    textfile: PathBuf,
    socket: PathBuf,
    program: Running,
}

impl Machine {
    /// Opens its port itself, or gets it as systemd hands over the socket of a unit.
    fn start(folder: &Path, name: &str, is_handed_over: bool) -> Self {
        let (state, textfile) = (folder.join(name), folder.join(name).join("textfile"));
        fs::create_dir_all(&textfile).unwrap();
        fs::create_dir_all(state.join("run")).unwrap();
        let program = state.join(format!("megatest-{name}"));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (input, listen) = match is_handed_over {
            true => (Stdio::from(OwnedFd::from(socket)), String::new()),
            false => {
                drop(socket);
                (Stdio::null(), format!("metrics-listen = \"{address}\"\n"))
            }
        };
        let textfile = textfile.join("mega.prom");
        // Copied by another process: a file that this one has open for writing is busy (ETXTBSY) as long as another test's child, forked meanwhile, holds it.
        let copied = Command::new("cp").arg("/bin/dd").arg(&program).status().unwrap();
        assert!(copied.success());
        let config = state.join("mega.toml");
        let text = format!(
            "[daemon]\ninterval = \"100ms\"\njournal = \"off\"\n{listen}metrics-file = \"{}\"\n\
             [[rule]]\nname = \"test \\\"{name}\\\"\"\nmatch = {{ comm = \"megatest-{name}\" }}\npolicy = \"ingens\"\n",
            textfile.display()
        );
        fs::write(&config, text).unwrap();
        fs::create_dir_all("/run/mega").unwrap();
        let script = "mount --bind \"$1/run\" /run/mega && exec 3<&0 0</dev/null && \
                      LISTEN_PID=$$ LISTEN_FDS=1 exec \"$2\" daemon --config \"$1/mega.toml\"";
        let mut daemon = Command::new("unshare");
        daemon.args(["--mount", "sh", "-c", script, "sh"]).arg(&state);
        let daemon = daemon.arg(env!("CARGO_BIN_EXE_mega")).stdin(input).spawn().unwrap();
        // Holds 64 MB, filled, and waits for somebody to read them.
        let mut holding = Command::new(&program);
        holding.args(["if=/dev/zero", "bs=64M", "count=1"]);
        Self {
            daemon: Running(daemon),
            address,
            textfile,
            socket: state.join("run/metrics.sock"),
            program: Running::of(holding.stdout(Stdio::piped()).stderr(Stdio::null())),
        }
    }

    fn page(&self, accept: &str) -> Option<String> {
        let (status, _, body) = get(TcpStream::connect(self.address).ok()?, "/metrics", accept);
        (status == 200).then_some(body)
    }
}

#[test]
fn the_alert_rules_are_right_and_fire_on_their_faults_only() {
    match programs() {
        Err(why) => eprintln!("SKIPPED: no promtool here, and it cannot be had: {why}"),
        Ok(programs) => {
            promtool(&programs, &["check", "rules", "mega.rules.yml"], None);
            promtool(&programs, &["test", "rules", "mega.rules.test.yml"], None);
        }
    }
}

#[test]
fn prometheus_scrapes_two_daemons_and_the_dashboard_has_data_and_a_dead_one_raises_the_alarm() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: managing needs root");
        return;
    }
    let programs = match programs() {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("SKIPPED: no Prometheus here, and it cannot be had: {why}");
            return;
        }
    };
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let (mut a, b) = (Machine::start(folder, "a", false), Machine::start(folder, "b", true));

    // Both formats are well-formed, on every way.
    until("both daemons look at their programs", || {
        let sees = |of: &Machine| {
            of.page("*/*")
                .is_some_and(|page| page.contains("state=\"managed\"} 1\n"))
        };
        sees(&a) && sees(&b)
    });
    let plain = a.page("*/*").unwrap();
    promtool(&programs, &["check", "metrics"], Some(&plain));
    assert!(
        plain.contains("mega_rule_info{rule=\"test \\\"a\\\"\",policy=\"ingens\"} 1\n"),
        "{plain}"
    );
    let open = a.page("application/openmetrics-text;version=1.0.0").unwrap();
    assert!(
        open.ends_with("# EOF\n") && open.contains("# TYPE mega_scans counter\n"),
        "{open}"
    );
    let (status, head, _) = get(UnixStream::connect(&a.socket).unwrap(), "/metrics", "*/*");
    assert!(status == 200 && head.contains("text/plain; version=0.0.4"), "{head}");
    until("the textfile is there", || a.textfile.exists());
    promtool(
        &programs,
        &["check", "metrics"],
        Some(&fs::read_to_string(&a.textfile).unwrap()),
    );
    // No process has a series of its own.
    assert!(!plain.contains("pid=") && plain.lines().count() < 300, "{plain}");

    // node_exporter passes the file on.
    let exporter_at = free_address();
    let mut exporter = Command::new(programs.join("prometheus-node-exporter"));
    exporter.args([
        "--collector.disable-defaults",
        "--collector.textfile",
        "--log.level=error",
    ]);
    exporter.arg(format!(
        "--collector.textfile.directory={}",
        a.textfile.parent().unwrap().display()
    ));
    let _exporter = Running::of(exporter.arg(format!("--web.listen-address={exporter_at}")));
    until("node_exporter has them", || {
        let page = TcpStream::connect(exporter_at)
            .ok()
            .map(|stream| get(stream, "/metrics", "*/*").2);
        page.is_some_and(|page| {
            assert!(!page.contains("\nnode_textfile_scrape_error 1\n"), "{page}");
            page.contains("mega_free_blocks{") && page.contains("mega_build_info{")
        })
    });

    // Prometheus scrapes both.
    let prometheus = Prometheus(free_address());
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n\
         - job_name: mega\n  static_configs: [{{targets: ['{}', '{}']}}]\n",
        shipped("mega.rules.yml").display(),
        a.address,
        b.address
    );
    let file = folder.join("prometheus.yml");
    fs::write(&file, config).unwrap();
    promtool(&programs, &["check", "config", file.to_str().unwrap()], None);
    let mut command = Command::new(programs.join("prometheus"));
    command
        .arg(format!("--config.file={}", file.display()))
        .arg("--log.level=error");
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command
        .arg(format!("--web.listen-address={}", prometheus.0))
        .current_dir(folder);
    let _server = Running::of(&mut command);
    until("both targets are up", || {
        prometheus.query("up{job=\"mega\"} == 1").len() == 2
    });
    until("both programs' memory is seen", || {
        prometheus.query("mega_mapped_bytes > 60e6").len() == 2
    });

    // What was refused or deferred has series from the first time on; every other panel has data at once.
    let may_be_empty = ["Why not", "Stall of one action"];
    for (title, expr) in expressions() {
        if may_be_empty.contains(&title.as_str()) {
            prometheus.query(&expr);
        } else {
            until(&format!("{title}: {expr}"), || !prometheus.query(&expr).is_empty());
        }
    }
    let alerts = prometheus.query("ALERTS{alertname!=\"MegaSettingChanged\"}");
    assert!(alerts.is_empty(), "{alerts:?}");

    // A daemon that dies is noticed; the other one is not accused.
    a.daemon.end();
    until("the alarm", || {
        !prometheus.query("ALERTS{alertname=\"MegaDown\"}").is_empty()
    });
    let alerts = prometheus.query("ALERTS{alertname!=\"MegaSettingChanged\"}");
    let accused = alerts.iter().map(|alert| alert["metric"]["instance"].as_str().unwrap());
    assert!(
        accused.clone().all(|instance| instance == a.address.to_string()),
        "{alerts:?}"
    );
    assert!(
        a.program.0.try_wait().unwrap().is_none(),
        "the program has ended with the daemon"
    );
}
