//! The configuration in force: all files merged, defaults filled in, rules in the order in which they are tried.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mega_core::policy::guarantee::PARAMETER;
use mega_core::units::{Bytes, Share};
use serde_json::{json, Map, Value as Json};

use super::describe::{keys_of, Section, Value};
use super::files::{texts, Source};
use super::place::Problem;
use super::read::{self, Given, Rule, Values};

/// Rules and loops at most.
pub const RULES_MAX: usize = 512;
const LOOPS_MAX: usize = 32;

/// What is in force.
#[derive(Debug)]
pub struct Config {
    /// The files, in the order in which they were read.
    pub files: Vec<PathBuf>,
    daemon: Values,
    /// The rules, the first one first.
    pub rules: Vec<Rule>,
    /// What is odd but no mistake.
    pub warnings: Vec<Problem>,
}

/// What rules have in common that share a loop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loop {
    /// The policy's own name.
    pub policy: String,
    /// Its parameters.
    pub set: Vec<String>,
    /// The stall budget, in millionths; none: the policy's.
    pub stall: Option<u32>,
}

/// Where the metrics go, beside the sockets that are always there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Where {
    /// An address of loopback.
    pub listen: Option<SocketAddr>,
    /// A file for node_exporter.
    pub file: Option<PathBuf>,
}

impl Loop {
    /// The coverage that it guarantees.
    pub fn guarantee(&self) -> Option<Share> {
        let given = self.set.iter().filter_map(|set| set.split_once('='));
        let mut given = given.filter(|(name, _)| *name == PARAMETER);
        given.next().and_then(|(_, share)| share.parse().ok())
    }
}

impl Config {
    /// Reads and checks.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load(source: &Source) -> Result<Self, Vec<Problem>> {
        let (main, drop_ins) = texts(source).map_err(|problem| vec![problem])?;
        let mut config = Self {
            files: Vec::new(),
            daemon: Values::new(),
            rules: Vec::new(),
            warnings: Vec::new(),
        };
        let (mut problems, mut last) = (Vec::new(), Vec::new());
        let is_main = main.iter().map(|_| true).chain(std::iter::repeat(false));
        for (text, is_main) in main.iter().chain(&drop_ins).zip(is_main) {
            let (contents, wrong) = read::read(&text.path, &text.text);
            problems.extend(wrong);
            config.files.push(text.path.clone());
            config.daemon.extend(contents.daemon);
            if is_main { &mut last } else { &mut config.rules }.extend(contents.rules);
        }
        config.rules.append(&mut last);
        if let Some(rule) = config.rules.get(RULES_MAX) {
            problems.push(Problem {
                place: rule.place.clone(),
                text: format!("more than {RULES_MAX} rules"),
            });
        } else if config.loops().len() > LOOPS_MAX {
            if let Some(rule) = config.rules.last() {
                let text = format!("more than {LOOPS_MAX} different settings of policy, set and stall-budget");
                problems.push(Problem {
                    place: rule.place.clone(),
                    text,
                });
            }
        } else {
            config.warnings = config.never_matched();
        }
        match problems.is_empty() {
            true => Ok(config),
            false => Err(problems),
        }
    }

    /// The loops that the rules need, with the rules' numbers.
    pub fn loops(&self) -> BTreeMap<Loop, Vec<usize>> {
        let mut loops: BTreeMap<Loop, Vec<usize>> = BTreeMap::new();
        for (number, rule) in self.rules.iter().enumerate() {
            loops.entry(rule.needs()).or_default().push(number);
        }
        loops.retain(|needs, _| needs.policy != "leave-alone");
        loops
    }

    fn never_matched(&self) -> Vec<Problem> {
        let mut warnings = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let wider = self.rules.iter().take(number).find(|earlier| earlier.covers(rule));
            warnings.extend(wider.map(|earlier| Problem {
                place: rule.place.clone(),
                text: format!(
                    "this rule can never match: '{}' ({}) matches all that it does",
                    earlier.name(),
                    earlier.place
                ),
            }));
        }
        warnings
    }

    fn daemon(&self, name: &str) -> Option<Value> {
        effective(&self.daemon, Section::Daemon, name)
    }

    /// No rule.
    pub fn none() -> Self {
        Self {
            files: Vec::new(),
            daemon: Values::new(),
            rules: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// `interval`
    pub fn interval(&self) -> Duration {
        match self.daemon("interval") {
            Some(Value::Time(time)) => time,
            _ => Duration::from_secs(5),
        }
    }

    /// A share of `[daemon]`.
    pub fn share(&self, name: &str) -> Share {
        match self.daemon(name) {
            Some(Value::Share(share)) => share,
            _ => Share::ZERO,
        }
    }

    /// `free-blocks`
    pub fn free_blocks(&self) -> u64 {
        match self.daemon("free-blocks") {
            Some(Value::Count(count)) => count,
            _ => 0,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.daemon(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// `group`
    pub fn group(&self) -> String {
        self.text("group").unwrap_or_default()
    }

    /// `metrics-listen` and `metrics-file`
    pub fn metrics(&self) -> Where {
        Where {
            listen: self.text("metrics-listen").and_then(|text| text.parse().ok()),
            file: self.text("metrics-file").map(PathBuf::from),
        }
    }

    /// `journal` and `journal-max`
    pub fn journal(&self) -> Option<(PathBuf, u64)> {
        let path = self.text("journal").filter(|text| text != "off")?;
        match self.daemon("journal-max") {
            Some(Value::Size(bytes)) => Some((path.into(), bytes.0)),
            _ => None,
        }
    }

    /// `dry-run`
    pub fn dry_run(&self) -> bool {
        self.daemon("dry-run") == Some(Value::Bool(true))
    }

    /// What is in force, and from where.
    pub fn to_json(&self) -> Json {
        let rules: Vec<Json> = self
            .rules
            .iter()
            .map(|rule| {
                let patterns: Map<_, _> = rule
                    .patterns
                    .iter()
                    .map(|(key, glob)| ((*key).to_owned(), json!(glob.text())))
                    .collect();
                json!({
                    "name": rule.name(), "from": rule.place.to_string(), "match": patterns, "set": rule.set,
                    "values": shown(&rule.values, Section::Rule),
                })
            })
            .collect();
        json!({
            "schema": 1, "files": self.files, "daemon": shown(&self.daemon, Section::Daemon), "rules": rules,
            "warnings": self.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// The same as TOML that can be read again, with comments.
    pub fn to_text(&self) -> String {
        let mut lines: Vec<String> = self.files.iter().map(|file| format!("# {}", file.display())).collect();
        lines.push("[daemon]".to_owned());
        lines.extend(written(&self.daemon, Section::Daemon));
        for rule in &self.rules {
            lines.push(format!("\n[[rule]]  # {}", rule.place));
            let patterns: Vec<String> = rule
                .patterns
                .iter()
                .map(|(key, glob)| format!("{key} = {}", quoted(glob.text())))
                .collect();
            lines.push(format!("match = {{ {} }}", patterns.join(", ")));
            lines.extend(written(&rule.values, Section::Rule));
            if !rule.set.is_empty() {
                let set: Vec<String> = rule
                    .set
                    .iter()
                    .filter_map(|set| set.split_once('='))
                    .map(|(k, v)| format!("{k} = {}", quoted(v)))
                    .collect();
                lines.push(format!("set = {{ {} }}", set.join(", ")));
            }
        }
        lines.join("\n")
    }
}

impl Rule {
    /// What messages call it.
    pub fn name(&self) -> String {
        self.values
            .get("name")
            .map_or_else(|| self.place.to_string(), |given| given.text.clone())
    }

    fn value(&self, name: &str) -> Option<Value> {
        effective(&self.values, Section::Rule, name)
    }

    /// `policy`
    pub fn policy(&self) -> String {
        match self.value("policy") {
            Some(Value::Text(name)) => name,
            _ => "leave-alone".to_owned(),
        }
    }

    /// `min-resident`
    pub fn min_resident(&self) -> Bytes {
        match self.value("min-resident") {
            Some(Value::Size(bytes)) => bytes,
            _ => Bytes(0),
        }
    }

    /// `guarantee`
    pub fn guarantee(&self) -> Option<Share> {
        match self.value("guarantee") {
            Some(Value::Share(share)) => Some(share),
            _ => None,
        }
    }

    fn needs(&self) -> Loop {
        let stall = match self.value("stall-budget") {
            Some(Value::Share(share)) => Some(share.as_millionths()),
            _ => None,
        };
        let policy = match self.policy() {
            off if off == "off" => "base".to_owned(),
            policy => policy,
        };
        let mut set = self.set.clone();
        set.extend(self.guarantee().map(|share| format!("{PARAMETER}={share}")));
        set.sort();
        Loop { policy, set, stall }
    }

    /// Whether it certainly matches whatever the other one does.
    fn covers(&self, other: &Self) -> bool {
        self.patterns.iter().all(|(key, glob)| match other.patterns.get(key) {
            Some(narrow) => glob.covers(narrow),
            // Every process has a name; not every one has a unit.
            None => *key == "comm" && glob.text().chars().all(|c| c == '*'),
        })
    }
}

fn effective(values: &Values, section: Section, name: &str) -> Option<Value> {
    let key = keys_of(section).find(|key| key.name == name)?;
    match values.get(name) {
        Some(given) => Some(given.value.clone()),
        None => key.kind.read(key.default).ok(),
    }
}

/// Each key with its text and place; defaults as such.
fn all(values: &Values, section: Section) -> impl Iterator<Item = (&'static super::describe::Key, Option<&Given>)> {
    keys_of(section)
        .filter(|key| !key.default.is_empty() || values.contains_key(key.name))
        .map(|key| (key, values.get(key.name)))
}

fn shown(values: &Values, section: Section) -> Map<String, Json> {
    all(values, section)
        .map(|(key, given)| {
            let value = given.map_or(key.default, |given| &given.text);
            let from = given.map_or("default".to_owned(), |given| given.place.to_string());
            (key.name.to_owned(), json!({"value": value, "from": from}))
        })
        .collect()
}

fn written(values: &Values, section: Section) -> Vec<String> {
    use super::describe::Kind;
    all(values, section)
        .map(|(key, given)| {
            let text = given.map_or(key.default, |given| &given.text);
            let value = if matches!(key.kind, Kind::Bool | Kind::Count) {
                text.to_owned()
            } else {
                quoted(text)
            };
            let from = given.map_or("default".to_owned(), |given| given.place.to_string());
            format!("{:<36}# {from}", format!("{} = {value}", key.name))
        })
        .collect()
}

/// A basic string of TOML; control characters were refused.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn made(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Config, Vec<Problem>>) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let config = Config::load(&Source::System(root.path().to_owned()));
        (root, config)
    }

    const RULE: &str = "[[rule]]\nmatch = { comm = \"x\" }\nname = ";

    #[test]
    fn drop_ins_override_by_name_and_mask_by_folder() {
        let (_root, config) = made(&[
            ("usr/lib/mega/mega.toml", "[daemon]\ninterval = \"1s\"\n"),
            ("etc/mega/mega.toml", "[daemon]\ninterval = \"2s\"\nfree-blocks = 7\n"),
            ("etc/mega/mega.d/20.toml", "[daemon]\ninterval = \"4s\"\n"),
            (
                "run/mega/mega.d/10.toml",
                "[daemon]\ninterval = \"3s\"\npressure = \"50%\"\n",
            ),
            ("usr/lib/mega/mega.d/30.toml", "[daemon]\ninterval = \"9s\"\n"),
            ("etc/mega/mega.d/30.toml", ""),
            ("etc/mega/mega.d/README", "no configuration"),
        ]);
        let config = config.unwrap();
        assert_eq!((config.interval(), config.free_blocks()), (Duration::from_secs(4), 7));
        assert_eq!(config.share("pressure"), Share::percent(50));
        let shown = config.to_json();
        assert!(shown["daemon"]["interval"]["from"]
            .as_str()
            .unwrap()
            .ends_with("etc/mega/mega.d/20.toml:2:12"));
        assert_eq!(shown["daemon"]["cpu-budget"]["from"], "default");
        assert_eq!(config.files.len(), 4);
    }

    #[test]
    fn rules_of_drop_ins_come_before_those_of_the_main_file() {
        let (_root, config) = made(&[
            ("etc/mega/mega.toml", &format!("{RULE}\"main\"")),
            ("etc/mega/mega.d/b.toml", &format!("{RULE}\"b\"")),
            ("usr/lib/mega/mega.d/a.toml", &format!("{RULE}\"a\"")),
        ]);
        let config = config.unwrap();
        assert_eq!(
            config.rules.iter().map(Rule::name).collect::<Vec<_>>(),
            ["a", "b", "main"]
        );
        assert_eq!(config.warnings.len(), 2, "the same match twice: {:?}", config.warnings);
    }

    #[test]
    fn a_rule_behind_a_wider_one_is_a_warning_and_one_behind_a_narrower_one_is_not() {
        let warned = |first: &str, second: &str| {
            let text = format!("[[rule]]\nmatch = {{ {first} }}\n[[rule]]\nmatch = {{ {second} }}\n");
            made(&[("etc/mega/mega.toml", &text)]).1.unwrap().warnings.len()
        };
        assert_eq!(warned("unit = \"redis*\"", "unit = \"redis-1\", user = \"u\""), 1);
        assert_eq!(warned("unit = \"redis-1\"", "unit = \"redis*\""), 0);
        assert_eq!(warned("comm = \"*\"", "unit = \"redis*\""), 1);
        assert_eq!(warned("unit = \"*\"", "comm = \"x\""), 0);
    }

    #[test]
    fn what_is_shown_reads_as_the_same_configuration() {
        let text = "[daemon]\ndry-run = true\n[[rule]]\nname = \"a \\\"b\\\"\"\nmatch = { exe = \"/x/**\" }\npolicy = \"ingens\"\n";
        let first = made(&[("etc/mega/mega.toml", text)]).1.unwrap();
        let second = made(&[("etc/mega/mega.toml", &first.to_text())]).1.unwrap();
        assert_eq!(first.loops(), second.loops());
        assert_eq!(first.rules[0].patterns, second.rules[0].patterns);
        assert_eq!(first.rules[0].name(), second.rules[0].name());
        assert!(second.dry_run());
    }

    #[test]
    fn a_guarantee_is_a_parameter_of_the_rules_loop() {
        let text = "[[rule]]\nmatch = { comm = \"x\" }\npolicy = \"mega\"\nguarantee = \"95%\"\n";
        let config = made(&[("etc/mega/mega.toml", text)]).1.unwrap();
        assert_eq!(config.rules[0].guarantee(), Some(Share::percent(95)));
        let loops = config.loops();
        assert_eq!(loops.keys().next().unwrap().set, ["guarantee=95%"]);
    }

    #[test]
    fn no_files_are_no_rules() {
        assert!(made(&[]).1.unwrap().rules.is_empty());
    }

    #[test]
    fn too_many_rules_and_too_long_files_are_refused() {
        let many = "[[rule]]\nmatch = { comm = \"x\" }\n".repeat(RULES_MAX + 1);
        assert!(made(&[("etc/mega/mega.toml", &many)]).1.unwrap_err()[0]
            .text
            .contains("more than"));
        let long = "#".repeat(257 << 10);
        assert!(made(&[("etc/mega/mega.toml", &long)]).1.unwrap_err()[0]
            .text
            .contains("longer"));
    }
}
