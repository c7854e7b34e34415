//! Events on standard output: one JSON object per line, flushed at once. First its name, `event`, and its time, `t_ns`
//! (CLOCK_MONOTONIC); then its own members, in alphabetical order.

use crate::timing::clock::now_ns;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;

/// The line of event `name` at time `t_ns` with the members of the object `fields`.
#[must_use]
pub fn line(name: &str, t_ns: u64, fields: Value) -> String {
    let mut text = format!("{{\"event\":{},\"t_ns\":{t_ns}", Value::from(name));
    if let Value::Object(members) = fields {
        for (key, value) in members {
            let _ = write!(text, ",{}:{value}", Value::from(key));
        }
    }
    text.push('}');
    text
}

/// Prints event `name` with the members of the object `fields`. If the reader has exited, the process ends quietly: a
/// workload without a reader has no purpose.
pub fn event(name: &str, fields: Value) {
    let text = line(name, now_ns(), fields);
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_of_json_with_name_and_time() {
        let text = line("ready", 12, json!({"areas": [{"start": 4096}]}));
        let v: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v["event"], "ready");
        assert_eq!(v["t_ns"], 12);
        assert_eq!(v["areas"][0]["start"], 4096);
        assert!(text.starts_with(r#"{"event":"ready","t_ns":12,"#) && !text.contains('\n'));
    }
}
