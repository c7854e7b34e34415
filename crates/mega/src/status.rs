//! The status line on a terminal while managing: one line, rewritten in place, never wider than the terminal.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use mega_core::control::Status;
use mega_core::units::{show_duration, Bytes, HUGE_PAGE_BYTES};

/// The line.
#[derive(Debug, Default)]
pub struct StatusLine {
    shown: Option<Instant>,
    at_start: (Duration, Duration, Duration),
    rates: (f64, f64),
}

impl StatusLine {
    /// Shows where things stand, at most five times a second.
    pub fn show(&mut self, status: &Status) {
        let due = Duration::from_millis(200);
        if self.shown.is_some_and(|shown| shown.elapsed() < due) {
            return;
        }
        self.shown = Some(Instant::now());
        self.measure(status);
        let width = terminal_width();
        let line = self.line(status, width);
        let mut err = io::stderr().lock();
        let _ = write!(
            err,
            "\r\x1b[2K{}",
            line.chars().take(width.saturating_sub(1)).collect::<String>()
        );
        let _ = err.flush();
    }

    /// Stall and processor share of about the last two seconds.
    fn measure(&mut self, s: &Status) {
        let (elapsed, stall, cpu) = self.at_start;
        let window = s.elapsed.saturating_sub(elapsed);
        if window >= Duration::from_secs(2) {
            let percent =
                |now: Duration, then: Duration| 100.0 * now.saturating_sub(then).as_secs_f64() / window.as_secs_f64();
            self.rates = (percent(s.stall, stall), percent(s.cpu, cpu));
            self.at_start = (s.elapsed, s.stall, s.cpu);
        }
    }

    /// Free blocks are shown where there is room for them.
    fn line(&self, s: &Status, width: usize) -> String {
        let mut line = format!(
            "{}/{} huge, +{} -{}, {} back, stall {:.1}% cpu {:.1}%, scan {}",
            s.huge,
            s.regions,
            s.promoted,
            s.demoted,
            s.returned,
            self.rates.0,
            self.rates.1,
            show_duration(s.scan_took),
        );
        if s.unscanned > 0 {
            let unscanned = format!(", {} processes not scanned", s.unscanned);
            if line.len() + unscanned.len() < width {
                line.push_str(&unscanned);
            }
        }
        if let Some(blocks) = s.free_blocks {
            let free = format!(", free blocks {}", Bytes(blocks.0 * HUGE_PAGE_BYTES));
            if line.len() + free.len() < width {
                line.push_str(&free);
            }
        }
        line
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(io::stderr())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::units::Blocks;

    #[test]
    fn the_line_fits_eighty_columns_on_a_large_machine_and_has_the_free_blocks_where_there_is_room() {
        let large = Status {
            regions: 524_288,
            huge: 524_000,
            promoted: 524_288,
            demoted: 10_240,
            returned: Bytes::mib(999_999),
            scan_took: Duration::from_micros(123_456),
            free_blocks: Some(Blocks(524_288)),
            ..Status::default()
        };
        let small = Status {
            free_blocks: large.free_blocks,
            ..Status::default()
        };
        for (status, width, free) in [(large.clone(), 80, false), (large, 100, true), (small, 80, true)] {
            let line = StatusLine::default().line(&status, width);
            assert!(line.len() < width, "{} {line}", line.len());
            assert!(line.contains("scan"), "{line}");
            assert_eq!(line.contains("free blocks"), free, "{line}");
        }
        let none = StatusLine::default().line(&Status::default(), 80);
        assert!(!none.contains("free blocks"), "{none}");
    }
}
