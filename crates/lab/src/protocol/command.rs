//! Commands on standard input, one per line, read by a thread of their own. The end of the input means `quit`, so a
//! workload whose controller has exited ends.

use std::io::BufRead;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// A queue of commands.
#[derive(Debug)]
pub struct Commands {
    /// `None` when standard input is not read at all.
    lines: Option<Receiver<String>>,
}

impl Commands {
    /// Starts reading standard input.
    #[must_use]
    pub fn from_stdin() -> Self {
        Self::from_reader(std::io::BufReader::new(std::io::stdin()))
    }

    /// Starts reading `reader`.
    pub fn from_reader(reader: impl BufRead + Send + 'static) -> Self {
        let (tx, rx) = channel();
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                if tx.send(line.trim().to_string()).is_err() {
                    return;
                }
            }
        });
        Self { lines: Some(rx) }
    }

    /// A queue that never has commands: for workloads that end by themselves.
    #[must_use]
    pub fn none() -> Self {
        Self { lines: None }
    }

    /// Standard input if `wanted`, nothing otherwise.
    #[must_use]
    pub fn when(wanted: bool) -> Self {
        if wanted {
            Self::from_stdin()
        } else {
            Self::none()
        }
    }

    /// Waits for the next command.
    #[must_use]
    pub fn next(&self) -> String {
        match &self.lines {
            Some(rx) => rx.recv().unwrap_or_else(|_| "quit".into()),
            None => "quit".into(),
        }
    }

    /// Waits for the next command for at most `timeout`.
    #[must_use]
    pub fn next_within(&self, timeout: Duration) -> Option<String> {
        match &self.lines {
            Some(rx) => match rx.recv_timeout(timeout) {
                Ok(line) => Some(line),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some("quit".into()),
            },
            None => {
                std::thread::sleep(timeout);
                None
            }
        }
    }

    /// The next command, if it is already there.
    #[must_use]
    pub fn poll(&self) -> Option<String> {
        match self.lines.as_ref()?.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some("quit".into()),
        }
    }

    /// Waits for `go`. False when `quit` comes first. True at once when no commands are read.
    #[must_use]
    pub fn wait_for_go(&self) -> bool {
        if self.lines.is_none() {
            return true;
        }
        loop {
            match self.next().as_str() {
                "go" => return true,
                "quit" => return false,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_in_order_and_the_end_of_input_means_quit() {
        let c = Commands::from_reader(std::io::Cursor::new("check\n where \n"));
        assert_eq!(c.next(), "check");
        assert_eq!(c.next_within(Duration::from_secs(5)).as_deref(), Some("where"));
        assert_eq!(c.next(), "quit");
        assert_eq!(c.poll().as_deref(), Some("quit"));
    }

    #[test]
    fn without_input_a_workload_goes_at_once() {
        assert!(Commands::none().wait_for_go());
        assert_eq!(Commands::none().poll(), None);
        assert!(!Commands::from_reader(std::io::Cursor::new("")).wait_for_go());
    }
}
