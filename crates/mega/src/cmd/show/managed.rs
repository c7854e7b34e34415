//! What the daemon has done to a process, if it manages it.

use std::time::Duration;

use mega_cli::text::printable;
use mega_core::units::show_duration;
use serde_json::{json, Value as Json};

use crate::service::daemon;

/// All rules with their processes, as the daemon tells them. Empty where none runs, or it is not ours to ask.
pub struct Rules(Vec<Json>);

impl Rules {
    pub fn ask() -> Self {
        let mut status = daemon::ask().unwrap_or_default();
        match status["rules"].take() {
            Json::Array(rules) => Self(rules),
            _ => Self(Vec::new()),
        }
    }

    /// The rule that has this process, and what was done to it.
    pub fn of(&self, pid: u32) -> Option<Json> {
        self.0.iter().find_map(|rule| {
            let process = rule["processes"].as_array()?.iter().find(|one| one["pid"] == pid)?;
            // Refused at once, or not looked at yet.
            process["promotions"].as_u64()?;
            Some(json!({
                "rule": rule["name"], "policy": rule["policy"],
                "promotions": process["promotions"], "demotions": process["demotions"], "felt": process["felt"],
            }))
        })
    }
}

/// For people.
pub fn to_text(managed: &Json) -> String {
    let name = |key: &str| printable(managed[key].as_str().unwrap_or_default()).to_string();
    let (promoted, demoted) = (&managed["promotions"], &managed["demotions"]);
    let mut text = format!(
        "rule {}, policy {}: {promoted} promoted, {demoted} demoted",
        name("rule"),
        name("policy")
    );
    let felt = &managed["felt"];
    let actions = felt["actions"].as_u64().unwrap_or(0);
    if actions > 0 {
        let ns = |key: &str| show_duration(Duration::from_nanos(felt[key].as_u64().unwrap_or(0)));
        let under = |percent| show_duration(Duration::from_micros(under(felt, percent)));
        text += &format!(
            "; felt {} of {actions} actions, half under {}, 99% under {}, longest {}",
            ns("stall_ns"),
            under(50),
            under(99),
            ns("longest_ns")
        );
    }
    text
}

/// The histogram's lowest bound in microseconds that so many percent of the actions are under.
fn under(felt: &Json, percent: u64) -> u64 {
    let actions = felt["actions"].as_u64().unwrap_or(0);
    let bins: Vec<(u64, u64)> = serde_json::from_value(felt["under_us"].clone()).unwrap_or_default();
    let mut seen = 0;
    let enough = bins.iter().find(|(_, count)| {
        seen += count;
        seen * 100 >= actions * percent
    });
    enough.or(bins.last()).map_or(0, |(us, _)| *us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let felt = json!({"actions": 200, "stall_ns": 85_184_588, "longest_ns": 6_175_189, "under_us": [[64, 150], [1024, 48], [8192, 2]]});
        Rules(vec![
            json!({"name": "others", "policy": "mega", "processes": [{"pid": 4710, "state": "refused"}]}),
            json!({"name": "databases", "policy": "auto", "processes": [
                {"pid": 4711, "promotions": 190, "demotions": 10, "felt": felt},
                {"pid": 4712, "promotions": 0, "demotions": 0, "felt": {"actions": 0, "under_us": []}},
            ]}),
        ])
    }

    #[test]
    fn a_managed_process_has_its_rule_and_what_it_felt() {
        assert_eq!(
            to_text(&rules().of(4711).unwrap()),
            "rule databases, policy auto: 190 promoted, 10 demoted; felt 85.2ms of 200 actions, half under 64us, \
             99% under 1.02ms, longest 6.18ms"
        );
        assert_eq!(
            to_text(&rules().of(4712).unwrap()),
            "rule databases, policy auto: 0 promoted, 0 demoted"
        );
    }

    #[test]
    fn what_is_refused_or_nobody_s_has_none() {
        assert_eq!(rules().of(4710), None);
        assert_eq!(rules().of(1), None);
    }
}
