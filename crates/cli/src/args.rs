//! Parsers of option values that both commands take.

use std::time::Duration;

use mega_core::units::{parse_duration, show_duration, Share, UnitError};

/// A time of at least 10 ms.
///
/// # Errors
/// Why the text is none.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(10);
    let time = parse_duration(text).map_err(|e| e.to_string())?;
    if time < least {
        return Err(format!("'{text}' is too short: at least {}", show_duration(least)));
    }
    Ok(time)
}

/// A share of time above 0%.
///
/// # Errors
/// Why the text is none.
pub fn parse_budget(text: &str) -> Result<Share, String> {
    let share: Share = text.parse().map_err(|e: UnitError| e.to_string())?;
    if share == Share::ZERO {
        return Err("a budget must exceed 0% (--dry-run takes no action)".to_string());
    }
    Ok(share)
}
