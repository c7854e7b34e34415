//! The program itself on a pseudo-terminal: what it draws, what keys do, and that the terminal is as it was afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, Termios, Winsize};

const SOON: Duration = Duration::from_secs(30);

struct Terminal {
    keys: File,
    side: File,
    before: Termios,
    child: Child,
    seen: Arc<Mutex<(vt100::Parser, Vec<u8>)>>,
}

impl Terminal {
    /// `mega top` on this very process, 80×24.
    fn start(environment: &[(&str, &str)]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let side = File::from(rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&side, size).unwrap();
        let before = tcgetattr(&side).unwrap();
        let child = Command::new("setsid")
            .args([
                "--ctty",
                "--wait",
                env!("CARGO_BIN_EXE_mega-top"),
                "--interval",
                "200ms",
            ])
            .arg(std::process::id().to_string())
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side.try_clone().unwrap())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new((vt100::Parser::new(24, 80, 0), Vec::new())));
        let mut screen = File::from(controller);
        let keys = screen.try_clone().unwrap();
        let reader = Arc::clone(&seen);
        // Ends with the test program.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                let mut seen = reader.lock().unwrap();
                seen.0.process(&bytes[..n]);
                seen.1.extend_from_slice(&bytes[..n]);
            }
        });
        Self {
            keys,
            side,
            before,
            child,
            seen,
        }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().0.screen().contents()
    }

    /// Waits until the screen has these words, or has them no longer.
    fn until(&self, words: &str, there: bool) {
        let began = Instant::now();
        while self.text().contains(words) != there {
            assert!(
                began.elapsed() < SOON,
                "{words:?} there: {there}, not within {SOON:?}:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end: the terminal is as it was, the alternate screen left, the cursor shown. Gives what was written.
    fn end(mut self) -> (ExitStatus, Vec<u8>) {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
            assert!(began.elapsed() < SOON, "it does not end:\n{}", self.text());
        };
        while self.seen.lock().unwrap().0.screen().alternate_screen() {
            assert!(began.elapsed() < SOON, "the alternate screen is not left");
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = tcgetattr(&self.side).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        let seen = self.seen.lock().unwrap();
        assert!(!seen.0.screen().hide_cursor());
        (status, seen.1.clone())
    }
}

/// Escape sequences that choose a colour.
fn colours(written: &[u8]) -> usize {
    let text = String::from_utf8_lossy(written);
    let sequences = text.split("\x1b[").skip(1);
    let chosen = sequences.filter_map(|rest| rest.split_once('m').map(|(codes, _)| codes));
    let codes = chosen.filter(|codes| codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'));
    codes
        .flat_map(|codes| codes.split(';'))
        .filter(|code| matches!(code.parse(), Ok(30..=38 | 40..=48 | 90..=107)))
        .count()
}

#[test]
fn keys_do_what_the_help_says_and_the_terminal_is_put_back() {
    // Something to draw.
    let memory = vec![1u8; 16 << 20];
    let mut terminal = Terminal::start(&[]);
    terminal.until("unmanaged", true);
    terminal.press("?");
    terminal.until("any key closes", true);
    terminal.press("x");
    terminal.until("any key closes", false);
    // The process's map of regions, which has colours.
    terminal.press("\r");
    terminal.until("regions of", true);
    terminal.until("mapped|", true);
    std::hint::black_box(&memory);
    terminal.press("q");
    let (status, written) = terminal.end();
    assert!(status.success(), "{status}");
    assert!(colours(&written) > 0);
}

#[test]
fn without_colours_there_are_none() {
    let mut terminal = Terminal::start(&[("NO_COLOR", "1")]);
    terminal.until("unmanaged", true);
    terminal.press("\r");
    terminal.until("regions of", true);
    terminal.press("q");
    assert_eq!(colours(&terminal.end().1), 0);
}

#[test]
fn a_signal_puts_the_terminal_back_too() {
    let terminal = Terminal::start(&[]);
    terminal.until("unmanaged", true);
    // setsid became the program: it need not fork where it leads no group.
    let pid = i32::try_from(terminal.child.id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    terminal.end();
}
