//! One file: from text to values with their places. Whatever the bytes are, the answer is a value or a problem.

use std::collections::BTreeMap;
use std::path::Path;

use mega_core::policy::guarantee::PARAMETER;
use mega_core::presets::{by_name, Preset};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

use super::describe::{hint, keys_of, Key, Kind, Section, Value};
use super::glob::Glob;
use super::place::{Place, Problem};
use crate::manage::policy_from;

/// A value, as it was written and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// What it is.
    pub value: Value,
    /// Its text.
    pub text: String,
    /// Where it stands.
    pub place: Place,
}

/// The values of a table.
pub type Values = BTreeMap<&'static str, Given>;

/// A rule as a file has it.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Where it begins.
    pub place: Place,
    /// Its keys.
    pub values: Values,
    /// Its patterns.
    pub patterns: BTreeMap<&'static str, Glob>,
    /// Parameters of its policy, `KEY=VALUE`.
    pub set: Vec<String>,
}

/// What a file has.
#[derive(Debug, Default)]
pub struct Contents {
    /// `[daemon]`
    pub daemon: Values,
    /// Its rules in their order.
    pub rules: Vec<Rule>,
}

/// Reads a file's text; the problems are all that there are, except that none follows one of syntax.
pub fn read(path: &Path, text: &str) -> (Contents, Vec<Problem>) {
    let mut reader = Reader {
        path,
        text,
        problems: Vec::new(),
    };
    let mut contents = Contents::default();
    match DeTable::parse(text) {
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            reader.wrong(at, error.message().trim().replace('\n', "; "));
        }
        Ok(table) => reader.file(table.get_ref(), &mut contents),
    }
    reader
        .problems
        .sort_by_key(|problem| (problem.place.line, problem.place.column));
    (contents, reader.problems)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    problems: Vec<Problem>,
}

type Spot<'a, 'i> = &'a Spanned<DeValue<'i>>;

impl Reader<'_> {
    fn wrong(&mut self, byte: usize, text: String) {
        let place = self.place(byte);
        self.problems.push(Problem { place, text });
    }

    fn place(&self, byte: usize) -> Place {
        Place::of(self.path, self.text, byte)
    }

    fn file(&mut self, table: &DeTable<'_>, contents: &mut Contents) {
        for (name, value) in table {
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("daemon", DeValue::Table(table)) => contents.daemon = self.table(Section::Daemon, table).0,
                ("daemon", _) => self.wrong(name.span().start, "daemon must be a table: [daemon]".to_owned()),
                ("rule", DeValue::Array(rules)) => {
                    for rule in rules.iter() {
                        match rule.get_ref() {
                            DeValue::Table(table) => contents.rules.extend(self.rule(rule.span().start, table)),
                            _ => self.wrong(rule.span().start, "a rule must be a table: [[rule]]".to_owned()),
                        }
                    }
                }
                ("rule", _) => self.wrong(
                    name.span().start,
                    "a rule is written [[rule]], with two brackets".to_owned(),
                ),
                (other, _) => {
                    let hint = hint(other, &["daemon", "rule"]);
                    self.wrong(
                        name.span().start,
                        format!(
                            "unknown table '{}'{hint} (there are: [daemon], [[rule]])",
                            other.escape_debug()
                        ),
                    );
                }
            }
        }
    }

    /// The plain values of a table, and its tables.
    fn table<'a, 'i>(
        &mut self,
        section: Section,
        table: &'a DeTable<'i>,
    ) -> (Values, BTreeMap<&'static str, Spot<'a, 'i>>) {
        let (mut values, mut tables) = (Values::new(), BTreeMap::new());
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            let Some(key) = keys_of(section).find(|key| key.name == word) else {
                let known: Vec<&str> = keys_of(section).map(|key| key.name).collect();
                let text = format!(
                    "unknown key '{}' in {}{} (there are: {})",
                    word.escape_debug(),
                    section.title(),
                    hint(word, &known),
                    known.join(", ")
                );
                self.wrong(name.span().start, text);
                continue;
            };
            if matches!(key.kind, Kind::Parameters | Kind::Patterns) {
                tables.insert(key.name, value);
            } else if let Some(given) = self.value(key, value) {
                values.insert(key.name, given);
            }
        }
        (values, tables)
    }

    fn value(&mut self, key: &Key, value: Spot<'_, '_>) -> Option<Given> {
        let at = value.span().start;
        let text = match (value.get_ref(), key.kind) {
            (DeValue::Boolean(on), Kind::Bool) => on.to_string(),
            (DeValue::Integer(number), Kind::Count) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => number.as_str().to_owned(),
            },
            // A bare 0 needs no unit.
            (DeValue::Integer(number), Kind::Size) if number.as_str() == "0" => "0".to_owned(),
            (DeValue::String(text), kind) if !matches!(kind, Kind::Bool | Kind::Count) => text.to_string(),
            (other, kind) => {
                self.wrong(
                    at,
                    format!("{}: expected {}, found {}", key.name, kind.about(), shape(other)),
                );
                return None;
            }
        };
        match key.kind.read(&text) {
            Ok(value) => Some(Given {
                value,
                text,
                place: self.place(at),
            }),
            Err(why) => {
                self.wrong(
                    at,
                    format!(
                        "{}: {} (expected {}; range: {})",
                        key.name,
                        printable(&why),
                        key.kind.about(),
                        key.range
                    ),
                );
                None
            }
        }
    }

    fn rule(&mut self, at: usize, table: &DeTable<'_>) -> Option<Rule> {
        let before = self.problems.len();
        let (mut values, tables) = self.table(Section::Rule, table);
        let preset = preset(&mut values);
        let mut patterns = BTreeMap::new();
        match tables.get("match").map(|value| (value.span().start, value.get_ref())) {
            Some((at, DeValue::Table(table))) if table.is_empty() => {
                self.wrong(
                    at,
                    "match: at least one pattern; { comm = \"*\" } is everything".to_owned(),
                );
            }
            Some((_, DeValue::Table(table))) => {
                for (name, given) in self.table(Section::Match, table).0 {
                    patterns.insert(name, pattern(name, &given.text));
                }
            }
            Some((at, other)) => self.wrong(
                at,
                format!("match: expected a table {{ key = pattern }}, found {}", shape(other)),
            ),
            None => self.wrong(at, "the rule has no match = { … }: for whom is it?".to_owned()),
        }
        let mut set = tables
            .get("set")
            .map_or_else(Vec::new, |value| self.parameters(&values, value));
        set.extend(
            preset
                .iter()
                .flat_map(|preset| missing(preset, &set))
                .collect::<Vec<_>>(),
        );
        let policy = values.get("policy").map_or("auto", |given| given.text.as_str());
        if let (Some(given), "off" | "base" | "leave-alone") = (values.get("guarantee"), policy) {
            let text = format!("guarantee: policy '{policy}' makes no huge pages");
            self.problems.push(Problem {
                place: given.place.clone(),
                text,
            });
        }
        // What stands in the file is checked whole, so that all mistakes are named at once.
        (self.problems.len() == before).then(|| Rule {
            place: self.place(at),
            values,
            patterns,
            set,
        })
    }

    fn parameters(&mut self, values: &Values, value: Spot<'_, '_>) -> Vec<String> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong(
                value.span().start,
                format!("set: expected a table, found {}", shape(value.get_ref())),
            );
            return Vec::new();
        };
        let policy = values.get("policy").map_or("auto", |given| given.text.as_str());
        if matches!(policy, "off" | "leave-alone") && !table.is_empty() {
            self.wrong(value.span().start, format!("set: policy '{policy}' has no parameters"));
            return Vec::new();
        }
        let mut set = Vec::new();
        for (name, value) in table {
            if name.get_ref() == PARAMETER {
                let text = format!("set: {PARAMETER} is a key of the rule itself");
                self.wrong(name.span().start, text);
                continue;
            }
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.as_str().to_owned(),
                DeValue::Float(number) => number.as_str().to_owned(),
                DeValue::Boolean(on) => on.to_string(),
                other => {
                    self.wrong(
                        value.span().start,
                        format!("set: expected a text or a number, found {}", shape(other)),
                    );
                    continue;
                }
            };
            let word = format!("{}={text}", name.get_ref());
            match policy_from(policy, std::slice::from_ref(&word)) {
                Err(error) => self.wrong(name.span().start, format!("set: {}", printable(&error.to_string()))),
                Ok(_) => set.push(word),
            }
        }
        // Each for itself is right; are all together?
        if let Err(error) = policy_from(policy, &set) {
            self.wrong(value.span().start, format!("set: {}", printable(&error.to_string())));
        }
        set
    }
}

/// Fills in what the rule's preset gives and the rule does not: as if it stood where the preset is named. None where the rule has another
/// policy than the preset, whose parameters then mean nothing.
fn preset(values: &mut Values) -> Option<&'static Preset> {
    let named = values.get("preset")?.clone();
    let preset = by_name(&named.text)?;
    for (name, text) in preset.keys() {
        let key = keys_of(Section::Rule).find(|key| key.name == name);
        if let Some((key, value)) = key.and_then(|key| Some((key, key.kind.read(text).ok()?))) {
            values.entry(key.name).or_insert_with(|| Given {
                value,
                text: text.to_owned(),
                place: named.place.clone(),
            });
        }
    }
    let policy = values.get("policy").map(|given| given.text.as_str());
    preset
        .keys()
        .any(|(name, own)| name == "policy" && policy == Some(own))
        .then_some(preset)
}

/// Parameters of the preset that are not among those given.
fn missing<'a>(preset: &'a Preset, set: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let is_given = move |name: &str| {
        set.iter()
            .any(|word| word.split_once('=').is_some_and(|(key, _)| key == name))
    };
    preset
        .set()
        .filter(move |(name, _)| !is_given(name))
        .map(|(name, value)| format!("{name}={value}"))
}

/// The pattern of a key of `match`; a unit without a type is a service.
fn pattern(name: &str, text: &str) -> Glob {
    let is_path = matches!(name, "cgroup" | "exe");
    let ends = [".service", ".scope", ".slice", ".mount", ".socket", ".swap"];
    match name == "unit" && !text.ends_with('*') && !ends.iter().any(|end| text.ends_with(end)) {
        true => Glob::new(&format!("{text}.service"), false),
        false => Glob::new(text, is_path),
    }
}

/// Text from a file, for a message of one line.
fn printable(text: &str) -> String {
    text.chars()
        .take(300)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn shape(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text in quotes",
        DeValue::Integer(_) => "a number without quotes",
        DeValue::Float(_) => "a number with a point, without quotes",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problems(text: &str) -> Vec<String> {
        read(Path::new("f"), text).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mistake_is_named_with_its_place_and_the_nearest_key() {
        for (text, place, words) in [
            ("[daemon]\nintervall = \"5s\"\n", "f:2:1: ", "did you mean 'interval'"),
            ("[daemon]\ninterval = \"5 parsecs\"\n", "f:2:12: ", "expected time"),
            ("[daemon]\ninterval = 5\n", "f:2:12: ", "a number without quotes"),
            ("[daemon]\ninterval = \"1h\"\n", "f:2:12: ", "at most"),
            ("[daemon]\ncpu-budget = \"0%\"\n", "f:2:14: ", "exceed 0%"),
            ("[daemon]\nfree-blocks = -1\n", "f:2:15: ", "no whole number"),
            ("[deamon]\n", "f:1:2: ", "did you mean 'daemon'"),
            ("[rule]\n", "f:1:2: ", "two brackets"),
            ("[[rule]]\npolicy = \"mega\"\n", "f:1:1: ", "no match"),
            ("[[rule]]\nmatch = {}\n", "f:2:9: ", "at least one pattern"),
            ("[[rule]]\nmatch = { com = \"x\" }\n", "f:2:11: ", "did you mean 'comm'"),
            ("[[rule]]\nmatch = { comm = \"ä\" }; \n", "f:2:23: ", ""),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\npolicy = \"ingen\"\n",
                "f:3:10: ",
                "did you mean 'ingens'? (there are: auto",
            ),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\npreset = \"reddis\"\n",
                "f:3:10: ",
                "did you mean 'redis'? (there are: redis, mongodb",
            ),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\npreset = \"kvm-guest\"\npolicy = \"off\"\n",
                "f:3:10: ",
                "makes no huge pages",
            ),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\nset = { nonsense = 1 }\n",
                "f:3:9: ",
                "nonsense",
            ),
            ("[daemon]\ninterval = \"5s\n", "f:2:", ""),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\nset = { guarantee = \"9%\" }\n",
                "f:3:9: ",
                "key of the rule",
            ),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\npolicy = \"off\"\nguarantee = \"95%\"\n",
                "f:4:13: ",
                "makes no huge pages",
            ),
            (
                "[[rule]]\nmatch = { comm = \"x\" }\nguarantee = \"0%\"\n",
                "f:3:13: ",
                "above 0%",
            ),
        ] {
            let found = problems(text);
            assert!(
                found.len() == 1 && found[0].starts_with(place) && found[0].contains(words),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn all_mistakes_of_a_file_are_named_at_once() {
        let text = "[daemon]\na = 1\nb = 2\n[[rule]]\nmatch = { comm = 5 }\npolicy = 3\n";
        let places: Vec<String> = problems(text)
            .iter()
            .map(|problem| problem.chars().take(6).collect())
            .collect();
        assert_eq!(places, ["f:2:1:", "f:3:1:", "f:5:18", "f:6:10"]);
    }

    #[test]
    fn a_unit_without_a_type_is_a_service() {
        assert_eq!(pattern("unit", "redis").text(), "redis.service");
        assert_eq!(pattern("unit", "redis*").text(), "redis*");
        assert_eq!(pattern("unit", "a.slice").text(), "a.slice");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(Path::new("f"), &String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_order_of_its_own_words_makes_it_panic(words in proptest::collection::vec(prop_oneof![
            Just("[daemon]"), Just("[[rule]]"), Just("\n"), Just("="), Just("match"), Just("{"), Just("}"), Just("["), Just("]"),
            Just("\"5s\""), Just("interval"), Just("preset"), Just("\"redis\""), Just("set"), Just("policy"), Just("\"mega\""), Just("comm"), Just("\"*\""), Just("."),
            Just("9999999999999999999999"), Just("\"\"\""), Just("'ä\u{7}'"), Just(","), Just("min-resident"), Just("-0x1"), Just("nan"),
        ], 0..40)) {
            read(Path::new("f"), &words.join(" "));
            read(Path::new("f"), &words.concat());
        }
    }
}
