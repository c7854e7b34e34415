//! docs/journal.md says what the code does: every event, field and word is in it, and every example in it is a line.

use std::collections::BTreeSet;

use mega_core::journal::{Event, Line};
use mega_core::observe::Why;

const DOC: &str = include_str!("../../../docs/journal.md");
const JOURNAL: &str = include_str!("../src/journal.rs");
const ACTION: &str = include_str!("../src/action.rs");
const STOCK: &str = include_str!("../src/compaction/target.rs");
const OBSERVE: &str = include_str!("../src/observe.rs");

/// The word that serde makes of a variant's name.
fn kebab(name: &str) -> String {
    let mut word = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(c.to_lowercase());
    }
    word
}

/// The variants of an enum, each with its named fields, as its source has them.
fn variants(source: &str, name: &str) -> Vec<(String, Vec<String>)> {
    let start = source
        .find(&format!("pub enum {name} {{"))
        .expect("the enum is in the source");
    let body = &source[start..];
    let body = &body[..body.find("\n}").expect("it ends")];
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in body.lines().skip(1) {
        let code = line.trim_end();
        if let Some(field) = code.strip_prefix("        ") {
            if let (Some((field, _)), Some(last)) = (field.split_once(": "), found.last_mut()) {
                if !field.starts_with('/') {
                    last.1.push(field.to_string());
                }
            }
        } else if code.trim_start().starts_with(|c: char| c.is_uppercase()) {
            let word: String = code.trim().chars().take_while(|c| c.is_alphanumeric()).collect();
            found.push((kebab(&word), Vec::new()));
        }
    }
    found
}

/// The part of the document about one event.
fn section(event: &str) -> &'static str {
    let head = format!("\n### `{event}`");
    let start = DOC
        .find(&head)
        .unwrap_or_else(|| panic!("docs/journal.md has no section for '{event}'"));
    let rest = &DOC[start + head.len()..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}

/// The lines inside code fences that are journal lines.
fn examples(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && line == "```journal";
        } else if inside {
            found.push(line);
        }
    }
    found
}

#[test]
fn every_event_and_field_of_the_code_is_in_the_document() {
    let events = variants(JOURNAL, "Event");
    assert!(events.len() >= 13, "the source was read: {events:?}");
    for (event, fields) in events {
        let section = section(&event);
        assert!(!fields.is_empty());
        for field in fields {
            assert!(
                section.contains(&format!("\n| `{field}` |")),
                "field '{field}' of '{event}'"
            );
        }
    }
}

#[test]
fn the_document_has_no_event_or_field_that_the_code_has_not() {
    for (event, fields) in variants(JOURNAL, "Event") {
        // The fields' table comes before the examples; there may be others after them.
        let fields_table = section(&event).split("```").next().unwrap_or_default();
        for row in fields_table.lines().filter_map(|line| line.strip_prefix("| `")) {
            let field = row.split('`').next().unwrap_or_default();
            assert!(
                fields.iter().any(|known| known == field),
                "field '{field}' of '{event}'"
            );
        }
    }
    let known: BTreeSet<_> = variants(JOURNAL, "Event").into_iter().map(|(event, _)| event).collect();
    for head in DOC.lines().filter_map(|line| line.strip_prefix("### `")) {
        let event = head.split('`').next().unwrap_or_default();
        assert!(known.contains(event), "event '{event}'");
    }
}

#[test]
fn every_word_that_a_field_can_hold_is_in_the_document() {
    for (source, name) in [
        (ACTION, "Deferred"),
        (STOCK, "Ended"),
        (ACTION, "ActionKind"),
        (ACTION, "Reason"),
        (ACTION, "Outcome"),
        (OBSERVE, "Why"),
    ] {
        let words = variants(source, name);
        assert!(words.len() >= 2);
        for (word, _) in words {
            assert!(DOC.contains(&format!("`{word}")), "word '{word}' of {name}");
            if name == "Why" {
                assert!(Why::from_word(&word).is_some(), "{word}");
            }
        }
    }
}

#[test]
fn every_event_has_an_example_and_every_example_is_a_line_as_the_code_writes_it() {
    for (event, _) in variants(JOURNAL, "Event") {
        let lines = examples(section(&event));
        assert!(!lines.is_empty(), "no example of '{event}'");
        for text in lines {
            assert_eq!(text.split(' ').nth(1), Some(event.as_str()), "{text}");
        }
    }
    for text in examples(DOC) {
        let line = Line::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let again = if text.starts_with('{') {
            line.to_json()
        } else {
            line.to_text()
        };
        assert_eq!(again, text);
        assert!(mega_core::journal::seen(&line.event).is_ok());
    }
}

#[test]
fn the_document_names_the_schema_of_the_code() {
    assert!(DOC.contains(&format!("schema {}", mega_core::journal::SCHEMA)));
    let line = examples(section("start"))[0];
    assert!(
        matches!(Line::parse(line).unwrap().event, Event::Start { schema, .. } if schema == mega_core::journal::SCHEMA)
    );
}
