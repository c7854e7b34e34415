//! Events on standard output: one JSON object per line, flushed at once, with `event` first in meaning and `t_ns`
//! (CLOCK_MONOTONIC) as its time.

use crate::clock::now_ns;
use serde_json::{json, Value};
use std::io::Write;

/// The line of event `name` at time `t_ns` with the members of the object `fields`.
#[must_use]
pub fn line(name: &str, t_ns: u64, fields: Value) -> String {
    let mut object = json!({ "event": name, "t_ns": t_ns });
    if let (Some(o), Value::Object(f)) = (object.as_object_mut(), fields) {
        o.extend(f);
    }
    object.to_string()
}

/// Prints event `name` with the members of the object `fields`. A reader that went away ends the process quietly: a
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

    #[test]
    fn an_event_is_one_line_of_json_with_name_and_time() {
        let text = line("ready", 12, json!({"areas": [{"start": 4096}]}));
        let v: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v["event"], "ready");
        assert_eq!(v["t_ns"], 12);
        assert_eq!(v["areas"][0]["start"], 4096);
        assert!(!text.contains('\n'));
    }
}
