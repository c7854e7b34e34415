//! A moment as RFC 3339 has it, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-24T23:59:59.123456Z`
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Of the Gregorian calendar, by days since 1970. Years begin in March here, so that a leap day is the last of its year; 400 of them are an era.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From March 1 of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let micros = UNIX_EPOCH + Duration::from_nanos(1_234_567_999);
        assert_eq!(rfc3339(micros), "1970-01-01T00:00:01.234567Z");
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = date(0);
        for day in 1..200_000 {
            let (year, month, of_month) = date(day);
            let next = (last.0, last.1, last.2 + 1) == (year, month, of_month)
                || of_month == 1 && (month == last.1 + 1 && year == last.0 || month == 1 && year == last.0 + 1);
            assert!(next, "{last:?} {:?}", date(day));
            last = date(day);
        }
    }
}
