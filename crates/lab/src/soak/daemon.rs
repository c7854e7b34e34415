//! The daemon: its start, its figures, its end by `mega off`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{failed, SoakError};
use crate::memory::die_with_parent_after_exec;

/// Where it serves its figures.
const METRICS: &str = "/run/mega/metrics.sock";
const PATIENCE: Duration = Duration::from_secs(30);

/// What is managed: the server, and the storms.
const RULES: &str = r#"
[[rule]]
name = "redis"
match = { comm = "redis-server" }
policy = "auto"
[[rule]]
name = "storm"
match = { comm = "mega-lab" }
policy = "auto"
min-resident = "1M"
"#;

/// A running daemon; killed when this is dropped.
pub(super) struct Daemon<'a> {
    child: Child,
    mega: &'a Path,
}

/// What it has counted since its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub at: Instant,
    pub cpu_s: f64,
    pub scans: f64,
    pub scan_s: f64,
    pub processes: f64,
    pub promotions: f64,
}

impl<'a> Daemon<'a> {
    /// Starts it, and waits until it serves its figures.
    pub fn start(mega: &'a Path, scratch: &Path) -> Result<Self, SoakError> {
        if UnixStream::connect(METRICS).is_ok() {
            return Err(failed("start a daemon")("one is running"));
        }
        let config = scratch.join("mega.toml");
        let journal = scratch.join("journal");
        let text = format!("[daemon]\njournal = \"{}\"\n{RULES}", journal.display());
        std::fs::write(&config, text).map_err(failed("write its configuration"))?;
        let mut command = Command::new(mega);
        command.args(["daemon", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = die_with_parent_after_exec(&mut command)
            .spawn()
            .map_err(failed("start a daemon"))?;
        let mut daemon = Self { child, mega };
        let end = Instant::now() + PATIENCE;
        while daemon.counts().is_err() {
            let ended = daemon.child.try_wait().map_err(failed("wait for the daemon"))?;
            if let Some(status) = ended {
                return Err(failed("start a daemon")(format!("it ended with {status}")));
            }
            if Instant::now() > end {
                return Err(failed("start a daemon")("it serves no figures"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has counted.
    pub fn counts(&self) -> Result<Counts, SoakError> {
        let text = page().map_err(failed("read the daemon's figures"))?;
        Ok(Counts {
            at: Instant::now(),
            cpu_s: sum(&text, "mega_cpu_seconds_total", ""),
            scans: sum(&text, "mega_scans_total", ""),
            scan_s: sum(&text, "mega_scan_seconds_total", ""),
            processes: sum(&text, "mega_processes", "state=\"managed\""),
            promotions: sum(&text, "mega_promotions_total", ""),
        })
    }

    /// Ends it by `mega off`; the time until both have ended, in ns.
    pub fn off(mut self) -> Result<u64, SoakError> {
        let began = Instant::now();
        let said = Command::new(self.mega)
            .arg("off")
            .stdin(Stdio::null())
            .output()
            .map_err(failed("run mega off"))?;
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr).into_owned();
            return Err(failed("end the daemon by mega off")(why));
        }
        self.child.wait().map_err(failed("wait for the daemon"))?;
        Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn page() -> std::io::Result<String> {
    let mut stream = UnixStream::connect(METRICS)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The sum of a metric over all its labels, of those that have this one.
fn sum(page: &str, name: &str, label: &str) -> f64 {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_it = labels.is_empty() || labels.starts_with('{');
        (is_it && labels.contains(label)).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_no_other_is() {
        let page = "# HELP a_total A.\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3.5\na_total_more 7\na 9\n";
        assert_eq!(sum(page, "a_total", ""), 5.5);
        assert_eq!(sum(page, "a_total", "x=\"2\""), 3.5);
        assert_eq!(sum(page, "a", ""), 9.0);
    }
}
