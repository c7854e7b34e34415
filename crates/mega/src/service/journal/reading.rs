//! Reading the journal, across its rotation.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mega_cli::text::printable;
use mega_core::journal::text_of;
use serde_json::{Map, Value as Json};

use super::files;

/// The longest line; what is longer is passed over.
const LINE_BYTES: usize = 1 << 20;

/// Which lines.
#[derive(Debug, Default, Clone)]
pub struct Filter {
    /// Of this rule.
    pub rule: Option<String>,
    /// Of this process.
    pub pid: Option<u32>,
    /// Of these events; all if there are none.
    pub events: Vec<String>,
}

impl Filter {
    /// The line as it is to be shown, if it is one of these.
    pub fn show(&self, line: &str, as_json: bool) -> Option<String> {
        let fields: Map<String, Json> = serde_json::from_str(line).ok()?;
        let is = |key: &str, wanted: &str| fields.get(key).and_then(Json::as_str) == Some(wanted);
        let wanted = self.rule.as_ref().is_none_or(|rule| is("rule", rule))
            && self
                .pid
                .is_none_or(|pid| fields.get("pid").and_then(Json::as_u64) == Some(u64::from(pid)))
            && (self.events.is_empty() || self.events.iter().any(|event| is("event", event)));
        match (wanted, as_json) {
            (false, _) => None,
            (true, true) => Some(line.to_owned()),
            (true, false) => Some(text(fields)),
        }
    }
}

/// `2026-11-24 23:59:59.123 databases redis.service outcome pid=1 …`
fn text(mut fields: Map<String, Json>) -> String {
    let mut word = |key: &str| match fields.shift_remove(key) {
        Some(Json::String(text)) => Some(text),
        _ => None,
    };
    let time = word("time").unwrap_or_default();
    // To the millisecond.
    let time = time.get(..23).unwrap_or(&time).replacen('T', " ", 1);
    let place = match (word("rule"), word("service"), word("policy")) {
        (Some(rule), service, _) => format!("{rule}: {}", service.unwrap_or_default()),
        (None, _, Some(policy)) => format!("policy {policy}"),
        _ => "daemon".to_owned(),
    };
    printable(&format!("{time} {place}: {}", text_of(fields))).into_owned()
}

/// Reads what is there, and later what has come.
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
}

struct Open {
    inode: u64,
    lines: BufReader<File>,
    /// The beginning of a line whose end is not there yet.
    part: Vec<u8>,
}

impl Follower {
    /// Of this journal.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            open: None,
        }
    }

    /// The files that there are and that are not read yet, the oldest first.
    fn next_files(&self) -> io::Result<Vec<(u64, File)>> {
        let mut found = Vec::new();
        for path in files(&self.path) {
            match File::open(&path) {
                Ok(file) => found.push((file.metadata()?.ino(), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(open) = &self.open {
            if let Some(at) = found.iter().position(|(inode, _)| *inode == open.inode) {
                found.drain(..=at);
            }
        }
        Ok(found)
    }

    /// Hands over every line that has come since the last call.
    ///
    /// # Errors
    /// A file cannot be read, or the line's taker fails.
    pub fn read(&mut self, mut take: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        // Before they are listed: what is read to its end afterwards is complete if a newer file was there.
        let next = self.next_files()?;
        if let Some(open) = &mut self.open {
            open.read(&mut take)?;
        }
        for (inode, file) in next {
            let mut open = Open {
                inode,
                lines: BufReader::new(file),
                part: Vec::new(),
            };
            open.read(&mut take)?;
            self.open = Some(open);
        }
        Ok(())
    }

    /// The last lines that the filter lets through, and where they end.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn last(&mut self, count: usize, filter: &Filter, as_json: bool) -> io::Result<VecDeque<String>> {
        let mut last = VecDeque::new();
        self.read(|line| {
            if let Some(line) = filter.show(line, as_json) {
                if last.len() == count {
                    last.pop_front();
                }
                if count > 0 {
                    last.push_back(line);
                }
            }
            Ok(())
        })?;
        Ok(last)
    }

    /// Whether there is any file.
    pub fn is_there(&self) -> bool {
        self.open.is_some()
    }
}

impl Open {
    fn read(&mut self, take: &mut impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        loop {
            let there = self.lines.fill_buf()?;
            if there.is_empty() {
                return Ok(());
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(there.len(), |end| end + 1);
            if self.part.len() <= LINE_BYTES {
                self.part.extend(there.iter().take(length));
            }
            self.lines.consume(length);
            if end.is_some() {
                let line = std::mem::take(&mut self.part);
                if line.len() <= LINE_BYTES {
                    take(String::from_utf8_lossy(&line).trim_end())?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Files;
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_is_shown_with_time_place_and_fields_and_nothing_that_a_terminal_obeys() {
        let line = r#"{"time":"2026-11-24T23:59:59.123456Z","rule":"r","service":"s.service","event":"outcome","pid":1,"outcome":"done","x":null}"#;
        let all = Filter::default();
        assert_eq!(
            all.show(line, false).unwrap(),
            "2026-11-24 23:59:59.123 r: s.service: outcome pid=1 outcome=done"
        );
        assert_eq!(all.show(line, true).unwrap(), line);
        let evil = r#"{"time":"\u001b[2J","rule":"\u001b]0;x","event":"\u0007"}"#;
        assert!(all.show(evil, false).unwrap().chars().all(|c| !c.is_control()));
        assert_eq!(all.show("{\"time\":", false), None);
    }

    #[test]
    fn only_the_lines_asked_for_are_shown() {
        let line = r#"{"rule":"r","event":"gone","pid":1}"#;
        let shows = |filter: Filter| filter.show(line, true).is_some();
        let of = |rule: &str, pid, events: &[&str]| Filter {
            rule: Some(rule.to_owned()),
            pid,
            events: events.iter().map(ToString::to_string).collect(),
        };
        assert!(shows(of("r", Some(1), &["found", "gone"])));
        assert!(!shows(of("q", Some(1), &[])));
        assert!(!shows(of("r", Some(2), &[])));
        assert!(!shows(of("r", None, &["found"])));
    }

    #[test]
    fn who_follows_sees_every_line_once_and_in_order_through_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut follower = Follower::new(&path);
        let mut seen: Vec<u32> = Vec::new();
        let mut read = |follower: &mut Follower| {
            let take = |line: &str| {
                seen.push(line.parse().unwrap());
                Ok(())
            };
            follower.read(take).unwrap();
        };
        read(&mut follower);
        assert!(!follower.is_there());
        let mut writer = Files::open(&path, 4000).unwrap();
        for number in 0..500u32 {
            // In two parts: a line is shown when its end is there.
            writer.write(&format!("{number:0>99}")).unwrap();
            if number % 7 == 0 {
                read(&mut follower);
            }
            writer.file.write_all(b"\n").unwrap();
        }
        read(&mut follower);
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_lines_are_the_last_that_fit_the_filter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let text: String = (0..10)
            .map(|pid| format!("{{\"event\":\"gone\",\"pid\":{}}}\n", pid % 2))
            .collect();
        std::fs::write(&path, text).unwrap();
        let filter = Filter {
            pid: Some(1),
            ..Filter::default()
        };
        assert_eq!(Follower::new(&path).last(3, &filter, true).unwrap().len(), 3);
        assert_eq!(Follower::new(&path).last(99, &filter, true).unwrap().len(), 5);
        assert!(Follower::new(&path).last(0, &filter, true).unwrap().is_empty());
    }
}
