//! The planner of a stock, from the command line.

use anyhow::Result;
use mega_core::planner::{by_name, Planner, PLANNERS};

use crate::exit::Failure;

/// The planner that `NAME` or `NAME:key=value,key=value` means.
pub fn planner_from(text: &str) -> Result<Box<dyn Planner>> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let mut planner = by_name(name).ok_or_else(|| {
        let names: Vec<_> = PLANNERS.iter().map(|(name, _)| *name).collect();
        Failure::usage(format!("no planner '{name}' (there are: {})", names.join(", ")))
    })?;
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("parameter '{setting}' of planner '{name}' is not KEY=VALUE")))?;
        planner.set(key, value).map_err(Failure::usage)?;
    }
    Ok(planner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planner_is_a_name_with_parameters() {
        assert_eq!(planner_from("demand").unwrap().name(), "demand");
        let planner = planner_from("demand:reserve=64M,interval=1s").unwrap();
        let params = planner.params();
        let value = |name| &params.iter().find(|param| param.name == name).unwrap().value;
        assert_eq!((value("reserve").as_str(), value("interval").as_str()), ("64M", "1s"));
        for (bad, why) in [
            ("magic", "no planner 'magic' (there are: mega, ingens, demand)"),
            ("mega:budget", "parameter 'budget' of planner 'mega' is not KEY=VALUE"),
            ("mega:budget=lots", "parameter 'budget'"),
            ("mega:no=1", "has no parameter 'no'"),
        ] {
            let error = planner_from(bad).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
