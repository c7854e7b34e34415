//! What agents say that they did: one page read, and sums of many.

use std::collections::BTreeMap;

use mega_core::journal::Event;
use mega_core::range::density::Density;
use mega_core::range::page::{Field, NotAPage, Page, Reason};
use mega_core::units::Bytes;
use serde_json::{json, Value};

use super::profiles::{Program, Shown};

const REGION_BYTES: u64 = 2 << 20;

/// Counts of what was done; the sums have their names.
const COUNTS: [Field; 10] = [
    Field::Advised,
    Field::AdvisedRegions,
    Field::Withdrawn,
    Field::Populated,
    Field::Collapsed,
    Field::CollapseFailed,
    Field::GivenBack,
    Field::Probes,
    Field::LookNs,
    Field::ActNs,
];

/// Mechanisms that a refused call switches off.
const MECHANISMS: [(Field, &str); 4] = [
    (Field::AdviseOff, "advise"),
    (Field::PopulateOff, "populate"),
    (Field::CollapseOff, "collapse"),
    (Field::SplitOff, "split"),
];

/// What one agent says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said([u64; Field::ALL.len()]);

impl Said {
    /// Reads its page.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn read(bytes: &[u8]) -> Result<Self, NotAPage> {
        let page = Page::read(bytes)?;
        let mut words = [0; Field::ALL.len()];
        for (word, field) in words.iter_mut().zip(Field::ALL) {
            *word = page.get(*field);
        }
        Ok(Self(words))
    }

    /// A field.
    pub fn get(&self, field: Field) -> u64 {
        let place = Field::ALL.iter().position(|own| *own == field);
        place.and_then(|place| self.0.get(place)).copied().unwrap_or(0)
    }

    /// Which program says it; none: it has no build ID.
    pub fn program(&self) -> Option<Program> {
        let program = Program(self.get(Field::Program));
        (program.0 != 0).then_some(program)
    }

    /// The program's name, which may hold anything.
    fn name(&self) -> String {
        let words = [Field::Name, Field::NameRest].map(|field| self.get(field).to_le_bytes());
        let bytes = words.concat();
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// What it has shown of how the program fills its memory.
    pub fn shown(&self) -> Shown {
        let count = |field| u32::try_from(self.get(field)).unwrap_or(u32::MAX);
        Shown {
            name: self.name(),
            density: Density {
                dense: count(Field::Dense),
                sparse: count(Field::Sparse),
                holes: count(Field::Holes),
            },
            resident: self.get(Field::Peak),
        }
    }

    /// Whether it is the page of a program that took the other's place: its counts began anew.
    pub fn began_anew_after(&self, before: &Self) -> bool {
        COUNTS.iter().any(|field| self.get(*field) < before.get(*field))
    }

    /// Whether it did, or was refused, something since then; that it looked is nothing.
    pub fn did_more_than(&self, before: &Self) -> bool {
        let differs = |field: Field| self.get(field) != before.get(field);
        let looks = [Field::LookNs, Field::ActNs];
        COUNTS.into_iter().filter(|field| !looks.contains(field)).any(differs)
            || MECHANISMS.into_iter().any(|(field, _)| differs(field))
            || differs(Field::Helper)
            || differs(Field::Reason)
    }

    /// What runs beside the program.
    fn helper(&self) -> &'static str {
        match self.get(Field::Helper) {
            0 => "none",
            1 => "process",
            2 => "thread",
            _ => "unknown",
        }
    }

    /// Why there is no helper.
    fn why(&self) -> Option<String> {
        let number = self.get(Field::Reason);
        if number == 0 || self.get(Field::Helper) != 0 {
            return None;
        }
        let known = Reason::ALL.iter().find(|reason| **reason as u64 == number);
        Some(known.map_or_else(|| errno(number), |reason| reason.text().to_owned()))
    }

    /// Mechanisms switched off by a refused call, with the error number.
    fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        MECHANISMS
            .into_iter()
            .map(|(field, name)| (name, self.get(field)))
            .filter(|(_, error)| *error != 0)
    }

    /// Its line of the journal.
    pub fn event(&self, pid: u32) -> Event {
        let refused: Vec<_> = self.refused().map(|(name, error)| format!("{name}:{error}")).collect();
        Event::Agent {
            pid,
            helper: self.helper().to_owned(),
            advised: self.get(Field::Advised),
            advised_regions: self.get(Field::AdvisedRegions),
            withdrawn: self.get(Field::Withdrawn),
            populated_regions: self.get(Field::Populated),
            collapsed: self.get(Field::Collapsed),
            collapse_failed: self.get(Field::CollapseFailed),
            given_back: self.get(Field::GivenBack),
            probes: self.get(Field::Probes),
            look_ns: self.get(Field::LookNs),
            act_ns: self.get(Field::ActNs),
            refused: (!refused.is_empty()).then(|| refused.join(",")),
            why: self.why(),
        }
    }

    /// In words, for `mega show`.
    pub fn to_text(&self) -> String {
        let beside = match (self.get(Field::Helper), self.why()) {
            (0, Some(why)) => format!("without a helper ({why})"),
            (0, None) => "has not begun".to_owned(),
            _ => format!("in a {}", self.helper()),
        };
        let mut sums = Sums::default();
        sums.add(self);
        format!("{beside}; {}", sums.deeds())
    }

    /// The same for machines.
    pub fn to_json(&self) -> Value {
        let mut value: serde_json::Map<String, Value> = Field::ALL
            .iter()
            .map(|field| (field.name().to_owned(), self.get(*field).into()))
            .collect();
        value.insert("helper".into(), self.helper().into());
        value.insert("reason".into(), self.why().into());
        for field in MECHANISMS.map(|(field, _)| field).into_iter().chain([Field::NameRest]) {
            value.remove(field.name());
        }
        value.insert("name".into(), self.name().into());
        value.insert(
            "program".into(),
            self.program().map(|program| program.to_string()).into(),
        );
        value.insert(
            "refused".into(),
            self.refused().collect::<BTreeMap<_, _>>().into_iter().collect(),
        );
        value.into()
    }
}

fn errno(number: u64) -> String {
    let number = i32::try_from(number).unwrap_or(0);
    std::io::Error::from_raw_os_error(number).to_string()
}

/// Sums over processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    processes: u64,
    counts: [u64; COUNTS.len()],
    /// By mechanism and error number: in how many processes.
    refused: BTreeMap<(&'static str, u64), u64>,
}

impl Sums {
    /// Adds a program's.
    pub fn add(&mut self, said: &Said) {
        self.processes += 1;
        for (sum, field) in self.counts.iter_mut().zip(COUNTS) {
            *sum = sum.saturating_add(said.get(field));
        }
        for refused in said.refused() {
            *self.refused.entry(refused).or_default() += 1;
        }
    }

    fn get(&self, field: Field) -> u64 {
        let place = COUNTS.iter().position(|own| *own == field);
        place.and_then(|place| self.counts.get(place)).copied().unwrap_or(0)
    }

    fn deeds(&self) -> String {
        let size = |field| Bytes(self.get(field).saturating_mul(REGION_BYTES));
        let mut text = format!(
            "{} advised, {} populated ahead, {} collapsed, {} given back",
            size(Field::AdvisedRegions),
            size(Field::Populated),
            size(Field::Collapsed),
            size(Field::GivenBack),
        );
        let refused: Vec<_> = self
            .refused
            .keys()
            .map(|(name, error)| format!("{name} ({})", errno(*error)))
            .collect();
        if !refused.is_empty() {
            text += &format!("; refused: {}", refused.join(", "));
        }
        text
    }

    /// As the end of the summary.
    pub fn to_text(&self) -> String {
        match self.processes {
            0 => "; no program loaded the agent".to_owned(),
            1 => format!("; agent: {}", self.deeds()),
            n => format!("; agents of {n} programs: {}", self.deeds()),
        }
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let mut value = json!({ "programs": self.processes });
        for field in COUNTS {
            value[field.name()] = self.get(field).into();
        }
        let refused = self.refused.iter();
        value["refused"] = refused
            .map(|((name, error), programs)| json!({"what": name, "errno": error, "programs": programs}))
            .collect();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::range::page::{BYTES, MAGIC, VERSION};

    fn said(fields: &[(Field, u64)]) -> Said {
        let mut bytes = vec![0u8; BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
        for (field, value) in fields {
            let at = field.word() * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Said::read(&bytes).unwrap()
    }

    #[test]
    fn sums_are_of_all_programs_and_each_refused_call_is_named_once() {
        let mut sums = Sums::default();
        assert_eq!(sums.to_text(), "; no program loaded the agent");
        sums.add(&said(&[
            (Field::AdvisedRegions, 512),
            (Field::Collapsed, 3),
            (Field::CollapseOff, 1),
        ]));
        sums.add(&said(&[
            (Field::Populated, 5),
            (Field::Collapsed, 1),
            (Field::CollapseOff, 1),
        ]));
        let text = sums.to_text();
        assert!(
            text.starts_with("; agents of 2 programs: 1.0G advised, 10M populated ahead, 8.0M collapsed, 0 "),
            "{text}"
        );
        assert!(
            text.ends_with("refused: collapse (Operation not permitted (os error 1))"),
            "{text}"
        );
        let json = sums.to_json();
        assert_eq!(
            (json["programs"].as_u64(), json["collapsed"].as_u64()),
            (Some(2), Some(4))
        );
        assert_eq!(json["refused"][0]["programs"], 2);
    }

    #[test]
    fn looking_alone_is_no_news_and_smaller_counts_are_another_program() {
        let before = said(&[(Field::Helper, 1), (Field::LookNs, 5), (Field::Collapsed, 3)]);
        let looked = said(&[(Field::Helper, 1), (Field::LookNs, 9), (Field::Collapsed, 3)]);
        let acted = said(&[(Field::Helper, 1), (Field::LookNs, 9), (Field::Collapsed, 4)]);
        let other = said(&[(Field::Helper, 1), (Field::LookNs, 1)]);
        assert!(!looked.did_more_than(&before) && acted.did_more_than(&before));
        assert!(!acted.began_anew_after(&before) && other.began_anew_after(&before));
    }

    #[test]
    fn why_there_is_no_helper_is_said_in_words() {
        let never = said(&[(Field::Reason, Reason::Never as u64)]);
        assert_eq!(never.to_json()["reason"], "transparent_hugepage/enabled is never");
        assert!(never
            .to_text()
            .starts_with("without a helper (transparent_hugepage/enabled is never); 0 "));
        let Event::Agent { why, refused, .. } = said(&[(Field::Reason, 1), (Field::AdviseOff, 22)]).event(7) else {
            panic!()
        };
        assert!(why.unwrap().starts_with("Operation not permitted"));
        assert_eq!(refused.as_deref(), Some("advise:22"));
    }

    #[test]
    fn pages_of_other_versions_are_refused() {
        let mut bytes = vec![0u8; BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8] = 9;
        assert_eq!(Said::read(&bytes), Err(NotAPage::Version(9)));
    }
}
