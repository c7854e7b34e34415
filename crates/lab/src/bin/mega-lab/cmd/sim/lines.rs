//! Progress on standard error: lines that stay, and on a terminal one that is rewritten while something goes on.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use mega_cli::exit::tell;

/// Where nothing is rewritten, a line that is soon old is told no more often than this.
const EVERY: Duration = Duration::from_secs(10);

/// The lines.
pub struct Lines {
    quiet: bool,
    terminal: bool,
    told: Option<Instant>,
}

impl Lines {
    /// Of a program that is to say nothing, or else something.
    pub fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            told: None,
        }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            self.clear();
            tell(text);
        }
    }

    /// How things stand: rewritten on a terminal, told now and then elsewhere.
    pub fn now(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        if self.terminal {
            // A line that is longer than the terminal could not be taken back.
            let text: String = text.chars().take(79).collect();
            eprint!("\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        } else if self.told.is_none_or(|told| told.elapsed() >= EVERY) {
            self.told = Some(Instant::now());
            tell(text);
        }
    }

    /// Takes the rewritten line away.
    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            eprint!("\r\x1b[K");
        }
    }
}
