//! The two forms of a line: text for people, JSON for machines.

use serde_json::{Map, Value};

use super::{JournalError, Line};
use crate::units::{Time, UnitError};

/// The fields of an event as text: its word, then `key=value`; a field without a value is left out.
pub fn text_of(mut fields: Map<String, Value>) -> String {
    use std::fmt::Write;
    let word = fields.shift_remove("event");
    let mut line = word.as_ref().and_then(Value::as_str).unwrap_or("?").to_owned();
    for (key, value) in &fields {
        let _ = match value {
            Value::Null => continue,
            Value::String(text) if is_plain(text) => write!(line, " {key}={text}"),
            other => write!(line, " {key}={}", escaped(&other.to_string())),
        };
    }
    line
}

impl Line {
    /// The fields of the event, its word (`event`) among them.
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(&self.event) {
            Ok(Value::Object(fields)) => fields,
            // An event is a struct of plain values under text keys: it always is an object.
            _ => Map::new(),
        }
    }

    /// The line as text.
    pub fn to_text(&self) -> String {
        format!("{} {}", self.at, text_of(self.fields()))
    }

    /// The line as JSON.
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("at_ns".to_string(), self.at.0.into());
        object.append(&mut self.fields());
        Value::Object(object).to_string()
    }

    /// Reads a line of either form.
    pub fn parse(line: &str) -> Result<Self, JournalError> {
        let line = line.trim_end_matches(['\n', '\r']);
        if line.starts_with('{') {
            Self::parse_json(line)
        } else {
            Self::parse_text(line)
        }
    }

    fn parse_json(line: &str) -> Result<Self, JournalError> {
        let mut object: Map<String, Value> = serde_json::from_str(line).map_err(|e| JournalError(e.to_string()))?;
        let at = object
            .shift_remove("at_ns")
            .and_then(|at| at.as_u64())
            .ok_or_else(|| JournalError("no field at_ns".to_string()))?;
        Self::from_fields(Time(at), object)
    }

    fn parse_text(line: &str) -> Result<Self, JournalError> {
        let bad = |what: &str| JournalError(what.to_string());
        let (at, rest) = line.split_once(' ').ok_or_else(|| bad("no event"))?;
        let at = at.parse().map_err(|e: UnitError| JournalError(e.to_string()))?;
        let (word, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut fields = Map::new();
        fields.insert("event".to_string(), word.into());
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=').ok_or_else(|| bad("a field without '='"))?;
            let (value, after) = if value.starts_with('"') {
                let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
                let text = values
                    .next()
                    .and_then(Result::ok)
                    .ok_or_else(|| bad("a quoted text that does not end"))?;
                (text, value.get(values.byte_offset()..).unwrap_or(""))
            } else {
                let end = value.find(' ').unwrap_or(value.len());
                (plain_value(&value[..end]), &value[end..])
            };
            if fields.insert(key.to_string(), value).is_some() {
                return Err(JournalError(format!("field {key} twice")));
            }
            rest = match after {
                "" => "",
                after => after.strip_prefix(' ').ok_or_else(|| bad("no space between fields"))?,
            };
        }
        Self::from_fields(at, fields)
    }

    fn from_fields(at: Time, fields: Map<String, Value>) -> Result<Self, JournalError> {
        let event = serde_json::from_value(Value::Object(fields)).map_err(|e| JournalError(e.to_string()))?;
        Ok(Self { at, event })
    }
}

/// JSON leaves control characters above ASCII, and those that reverse text, as they are; a terminal would obey them. Escaped they mean the
/// same to who reads the line.
fn escaped(json: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_harmful(c) {
            true => text.push_str(&format!("\\u{:04x}", c as u32)),
            false => text.push(c),
        }
    }
    text
}

/// Whether a text can stand in a line without quotes and reads back as a text.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_graphic() && c != '"')
        && matches!(plain_value(text), Value::String(_))
}

fn plain_value(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
    }
}
