//! Every key of the configuration, once: the parser, `mega config` and docs/configuration.md all come from here.

use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use mega_cli::args::{parse_budget, parse_interval};
use mega_core::policy::POLICIES;
use mega_core::presets::PRESETS;
use mega_core::units::{show_duration, Bytes, Share};

/// A table of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// `[daemon]`
    Daemon,
    /// `[[rule]]`
    Rule,
    /// `match = { … }` of a rule.
    Match,
}

impl Section {
    /// As it is written.
    pub fn title(self) -> &'static str {
        match self {
            Self::Daemon => "[daemon]",
            Self::Rule => "[[rule]]",
            Self::Match => "match",
        }
    }
}

/// What a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `"5s"`
    Time,
    /// `"2%"`, above zero.
    Budget,
    /// `"5%"`
    Share,
    /// `"95%"`, above zero.
    Guarantee,
    /// `"64M"`
    Size,
    /// The same, for files on disk.
    DiskSize,
    /// A whole number.
    Count,
    /// `true` or `false`
    Bool,
    /// A short text.
    Text,
    /// A policy, `off` or `leave-alone`.
    Policy,
    /// A preset.
    Preset,
    /// An address and port of loopback.
    Address,
    /// The path of a file for node_exporter.
    Textfile,
    /// The path of a file, or `off`.
    FileOrOff,
    /// A pattern of a name.
    Name,
    /// A pattern of a path.
    Path,
    /// Parameters of the policy.
    Parameters,
    /// The table of patterns.
    Patterns,
}

/// A value that has been read.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A time.
    Time(Duration),
    /// A share.
    Share(Share),
    /// An amount of memory.
    Size(Bytes),
    /// A number.
    Count(u64),
    /// A switch.
    Bool(bool),
    /// Any text.
    Text(String),
}

/// The longest time between scans: a watchdog must not bark between two.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// What files on disk may take.
const DISK_SIZES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// The longest path of a file.
const PATH_MAX: usize = 4000;
/// The longest name of a rule.
const NAME_MAX: usize = 64;

impl Kind {
    /// Type and unit, for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::Time => "time: \"500ms\", \"5s\"",
            Self::Budget | Self::Share | Self::Guarantee => "share: \"5%\"",
            Self::Size | Self::DiskSize => "bytes: \"64M\", \"2G\"",
            Self::Count => "whole number",
            Self::Bool => "true or false",
            Self::Text => "text",
            Self::Policy => "policy's name",
            Self::Preset => "preset's name",
            Self::Address => "address and port: \"127.0.0.1:9642\"",
            Self::Textfile => "path of a file",
            Self::FileOrOff => "path of a file, or \"off\"",
            Self::Name => "pattern with * and ?",
            Self::Path => "pattern with *, ? and ** (crosses /)",
            Self::Parameters => "table { parameter = value }",
            Self::Patterns => "table { key = pattern }",
        }
    }

    /// Reads a value from its text.
    ///
    /// # Errors
    /// What was expected.
    pub fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Time => match parse_interval(text)? {
                long if long > INTERVAL_MAX => Err(format!("at most {}", show_duration(INTERVAL_MAX))),
                time => Ok(Value::Time(time)),
            },
            Self::Budget => parse_budget(text).map(Value::Share),
            Self::Share => text.parse().map(Value::Share).map_err(|e| format!("{e}")),
            Self::Guarantee => match text.parse::<Share>() {
                Ok(share) if share == Share::ZERO => Err("must be above 0%".to_owned()),
                Ok(share) => Ok(Value::Share(share)),
                Err(error) => Err(error.to_string()),
            },
            Self::Size => text.parse().map(Value::Size).map_err(|e| format!("{e}")),
            Self::DiskSize => match text.parse::<Bytes>() {
                Ok(bytes) if !DISK_SIZES.contains(&bytes.0) => Err("must be from 1M to 1T".to_owned()),
                Ok(bytes) => Ok(Value::Size(bytes)),
                Err(error) => Err(error.to_string()),
            },
            Self::Count => text
                .parse()
                .map(Value::Count)
                .map_err(|_| format!("'{text}' is no whole number from 0")),
            Self::Bool => text
                .parse()
                .map(Value::Bool)
                .map_err(|_| format!("'{text}' is neither true nor false")),
            Self::Policy => one_of("policy", text, &choices().map(|(name, _)| name).collect::<Vec<_>>()),
            Self::Preset => one_of(
                "preset",
                text,
                &PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>(),
            ),
            Self::Address => match text.parse::<SocketAddr>() {
                Err(_) => Err(format!(
                    "'{text}' is no address with a port, such as 127.0.0.1:9642 or [::1]:9642"
                )),
                Ok(address) if !address.ip().is_loopback() => {
                    Err("not an address of this machine alone: put a proxy in front of it".to_owned())
                }
                Ok(address) if address.port() == 0 => Err("the port must not be 0".to_owned()),
                Ok(_) => Ok(Value::Text(text.to_owned())),
            },
            Self::FileOrOff if text == "off" => Ok(Value::Text(text.to_owned())),
            Self::Textfile if !text.ends_with(".prom") => {
                Err("must end in .prom: node_exporter reads no other".to_owned())
            }
            Self::Textfile | Self::FileOrOff => match text {
                text if text.chars().any(char::is_control) => Err("has a control character".to_owned()),
                text if text.len() > PATH_MAX => Err(format!("longer than {PATH_MAX} bytes")),
                text if !text.starts_with('/') || text.ends_with('/') => {
                    Err("must be a file's absolute path".to_owned())
                }
                text => Ok(Value::Text(text.to_owned())),
            },
            Self::Text | Self::Name | Self::Path => {
                let most = if self == Self::Text {
                    NAME_MAX
                } else {
                    super::glob::Glob::MAX_BYTES
                };
                match text {
                    "" => Err("must not be empty".to_owned()),
                    text if text.len() > most => Err(format!("longer than {most} bytes")),
                    text if text.chars().any(char::is_control) => Err("has a control character".to_owned()),
                    text => Ok(Value::Text(text.to_owned())),
                }
            }
            Self::Parameters | Self::Patterns => Err("must be a table".to_owned()),
        }
    }
}

/// A word that is known.
fn one_of(what: &str, text: &str, names: &[&str]) -> Result<Value, String> {
    match names.contains(&text) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(format!(
            "no {what} '{text}'{} (there are: {})",
            hint(text, names),
            names.join(", ")
        )),
    }
}

/// What a rule's `policy` can be, and what it is.
pub fn choices() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = [
        ("off", "base pages only: huge pages are demoted (policy base)"),
        ("leave-alone", "never looked at and never changed by the daemon"),
    ];
    POLICIES.iter().copied().chain(own)
}

/// `; did you mean 'x'?` where a known word is near.
pub fn hint(word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (distance(word, name), name)).min();
    match near {
        Some((far, name)) if far <= 1 + name.len() / 3 => format!("; did you mean '{name}'?"),
        _ => String::new(),
    }
}

/// Characters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let here = (diagonal + usize::from(x != y)).min(*cell + 1).min(left + 1);
            diagonal = std::mem::replace(cell, here);
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its table.
    pub section: Section,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default, as one would write it; empty: none.
    pub default: &'static str,
    /// What is allowed.
    pub range: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($section:ident $name:literal $kind:ident $default:literal $range:literal $meaning:literal)+) => {
        &[$(Key { section: Section::$section, name: $name, kind: Kind::$kind, default: $default, range: $range, meaning: $meaning }),+]
    };
}

/// All keys.
pub const KEYS: &[Key] = keys! {
    Daemon "interval" Time "5s" "10ms to 60s" "Time between two scans."
    Daemon "cpu-budget" Budget "10%" "above 0%" "The most of one processor for scanning and acting, by all loops together."
    Daemon "free-memory" Share "5%" "0% to 100%" "No promotion while less than this share of memory is available, on the machine or on the NUMA node it would come from."
    Daemon "free-blocks" Count "32" "from 0" "No promotion while fewer 2 MB blocks than this are free; each NUMA node keeps its part of them."
    Daemon "pressure" Share "10%" "0% to 100%" "Neither promotion nor clearing of accessed bits while memory pressure (PSI some, last 10 s) exceeds this."
    Daemon "dry-run" Bool "false" "true, false" "Decide only: no action, no setting changed."
    Daemon "group" Text "mega" "1 to 64 bytes" "The group whose members may read the status, where there is such a group; root always may, and nobody else may change anything."
    Daemon "metrics-listen" Address "" "an address of loopback" "Also serve the metrics there, for Prometheus; they are always served on /run/mega/metrics.sock."
    Daemon "metrics-file" Textfile "" "absolute, ends in .prom" "Also write the metrics to this file every 15 s, for node_exporter's textfile collector."
    Daemon "journal" FileOrOff "/var/log/mega/journal" "absolute, or off" "Where every decision and outcome is written, for `mega journal`. Older parts are beside it, with .1, .2 and .3 added."
    Daemon "journal-max" DiskSize "64M" "1M to 1T" "The most that these four files take together; the oldest quarter goes first."
    Rule "name" Text "" "1 to 64 bytes" "What status and messages call the rule; without one, its file and line."
    Rule "match" Patterns "" "at least one key" "Whom the rule is for: a process that fits all the patterns given. The first rule that matches a process decides."
    Rule "preset" Preset "" "see below" "What suits a well-known program: policy, set, stall-budget, guarantee and min-resident that the rule does not give itself."
    Rule "policy" Policy "auto" "see below" "What is done to them."
    Rule "set" Parameters "" "the policy's own" "Parameters of the policy (`mega policies`)."
    Rule "stall-budget" Budget "" "above 0%" "The largest share of time that a program may be stalled by our actions; where none is given, the policy's: 5%, for auto 2% with `for` = latency and none with throughput."
    Rule "guarantee" Guarantee "" "above 0%" "Coverage, the share of a process's mapped memory in huge pages, that is kept at or above this: demotions are given up and the fullest regions promoted for it, within the budgets. Where it is missed, the journal, the status and the metrics say why."
    Rule "min-resident" Size "0" "from 0" "Processes with less resident memory than this are not managed until they have grown."
    Match "unit" Name "" "1 to 512 bytes" "The systemd unit that the process is in, by its name in the control group's path; .service is added to a name without a type."
    Match "cgroup" Path "" "1 to 512 bytes" "The path of its control group, from the hierarchy's root: /system.slice/**."
    Match "comm" Name "" "1 to 512 bytes" "Its command name, which the kernel cuts to 15 bytes."
    Match "exe" Path "" "1 to 512 bytes" "The path of its executable."
    Match "user" Name "" "1 to 512 bytes" "Its real user: the name, or the number."
};

/// The keys of a table.
pub fn keys_of(section: Section) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.section == section)
}

/// docs/configuration.md.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for section in [Section::Daemon, Section::Rule, Section::Match] {
        let title = match section {
            Section::Match => "`match` of a rule".to_owned(),
            section => format!("`{}`", section.title()),
        };
        let _ = write!(text, "\n## {title}\n");
        for key in keys_of(section) {
            let default = if key.default.is_empty() { "none" } else { key.default };
            let entry = format!(
                "- **`{}`**: {} Type: {}. Default: {default}. Range: {}.",
                key.name,
                key.meaning,
                key.kind.about(),
                key.range
            );
            let _ = write!(text, "\n{}", wrap(&entry));
        }
        text.push('\n');
    }
    text.push_str("\n## Values of `policy`\n");
    for (name, about) in choices() {
        let _ = write!(text, "\n{}", wrap(&format!("- **`{name}`**: {about}.")));
    }
    text.push_str(
        "\n\n## Values of `preset`\n\nReasons, vendors' recommendations and figures: [presets.md](presets.md).\n",
    );
    for preset in PRESETS {
        let set = preset
            .set()
            .map(|(name, value)| ("set", format!("{{ {name} = \"{value}\" }}")));
        let keys = preset.keys().map(|(key, value)| (key, format!("\"{value}\"")));
        let keys: Vec<String> = keys.chain(set).map(|(key, value)| format!("{key} = {value}")).collect();
        let entry = format!("- **`{}`** ({}): `{}`.", preset.name, preset.programs, keys.join(", "));
        let _ = write!(text, "\n{}", wrap(&entry));
    }
    text.push_str("\n\n<!-- generated by `mega config describe` -->\n");
    text
}

/// Lines of at most 110 characters; what follows the first is indented.
fn wrap(entry: &str) -> String {
    let mut lines = vec![String::new()];
    for word in entry.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > 110 {
            lines.push(format!("  {word}"));
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}

const HEAD: &str = "# Configuration of the daemon

Every key, from the code's own description. How the daemon behaves: [service.md](service.md).

```
[daemon]
interval = \"5s\"

[[rule]]
name = \"databases\"
match = { unit = \"redis*.service\", user = \"redis\" }
policy = \"mega\"
stall-budget = \"2%\"

[[rule]]
name = \"everything else of the system\"
match = { cgroup = \"/system.slice/**\" }
policy = \"leave-alone\"
```

**Files.** The main file is the first of `/etc/mega/mega.toml`, `/run/mega/mega.toml` and
`/usr/lib/mega/mega.toml` that is there. Beside it, all `*.toml` of `/etc/mega/mega.d`,
`/run/mega/mega.d` and `/usr/lib/mega/mega.d` count, in the order of their names: of two with the
same name the one of the folder named first here counts alone, so an empty file (or a link to
/dev/null) in /etc masks what a package ships. A later file's key of `[daemon]` overrides an earlier
one's; the main file is the earliest. Rules are tried in the opposite sense: those of the drop-ins
first, in the order of their names, then those of the main file, because the first rule that matches
decides and a drop-in must be able to say something else than the main file. `--config FILE` reads
that file alone.

**Limits.** A file has at most 256 KB, a folder at most 256 files, the whole at most 512 rules and
32 loops.

**Checking.** `mega config check` names each mistake with file, line and column, and the nearest
known key; a rule that can never match, because an earlier one matches all that it does, is a
warning. `mega config show` prints what is in force and where each value comes from (`--json` for
programs).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(key.kind.read(key.default).is_ok(), "{}", key.name);
        }
    }

    #[test]
    fn the_nearest_known_word_is_offered_and_a_far_one_is_not() {
        assert_eq!(
            hint("intervall", &["interval", "pressure"]),
            "; did you mean 'interval'?"
        );
        assert_eq!(hint("zzzzzz", &["interval", "pressure"]), "");
    }

    #[test]
    fn metrics_are_served_to_this_machine_alone_and_files_are_named_in_full() {
        let is_good = |kind: Kind, text: &str| kind.read(text).is_ok();
        assert!(is_good(Kind::Address, "127.0.0.1:9642") && is_good(Kind::Address, "[::1]:9642"));
        for bad in [
            "0.0.0.0:9642",
            "192.0.2.1:9642",
            "[::]:9642",
            "127.0.0.1",
            "127.0.0.1:0",
            "localhost:9642",
            "",
        ] {
            assert!(!is_good(Kind::Address, bad), "{bad}");
        }
        assert!(is_good(Kind::Textfile, "/x/mega.prom"));
        assert!(!is_good(Kind::Textfile, "/x/mega.txt") && !is_good(Kind::Textfile, "mega.prom"));
        assert!(is_good(Kind::FileOrOff, "off") && is_good(Kind::FileOrOff, "/x"));
        assert!(!is_good(Kind::FileOrOff, "on") && !is_good(Kind::FileOrOff, "/x/"));
        assert!(is_good(Kind::DiskSize, "1M") && !is_good(Kind::DiskSize, "1023K") && !is_good(Kind::DiskSize, "2T"));
    }

    #[test]
    fn the_document_is_what_the_code_describes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let there = std::fs::read_to_string(path).unwrap();
        assert!(
            there == document(),
            "docs/configuration.md: write it anew by `mega config describe`"
        );
    }
}
