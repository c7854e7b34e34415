//! The terminal: taken, drawn on, given back on every way out.

use std::io::stdout;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_cli::signals::{stop_on_signals, stopped};
use mega_top::look::{Looker, Subject};
use mega_top::seen::Look;
use mega_top::state::{Key, State};
use mega_top::view::{draw, Palette};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{read, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::Terminal;

enum Event {
    Key(Key),
    Resized,
    Look(Box<Look>),
    Stop,
}

/// Shows until the user leaves or a signal ends it.
pub fn run(mut state: State, subject: Subject) -> Result<()> {
    let stop = stop_on_signals()?;
    let (sender, events) = channel();
    let (wanted, wants) = channel();
    let to = sender.clone();
    thread::spawn(move || {
        while !stopped(&stop, Duration::from_secs(60)) {}
        let _ = to.send(Event::Stop);
    });
    let to = sender.clone();
    thread::spawn(move || look(subject, &wants, &to));
    let _taken = Taken::take()?;
    thread::spawn(move || input(&sender));
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout())).context("cannot draw")?;
    let palette = Palette::of_environment();
    let mut map_of = state.wants_map();
    while !state.ended {
        terminal
            .draw(|frame| draw(frame, &mut state, palette))
            .context("cannot draw")?;
        let Ok(event) = events.recv() else { break };
        // What has come meanwhile is drawn at once.
        for event in std::iter::once(event).chain(events.try_iter()) {
            match event {
                Event::Key(key) => state.press(key),
                Event::Resized => {}
                Event::Look(look) => state.take(*look),
                Event::Stop => state.ended = true,
            }
        }
        if state.wants_map() != map_of {
            map_of = state.wants_map();
            let _ = wanted.send(map_of);
        }
    }
    Ok(())
}

/// Looks at every interval, and at once where another map is wanted.
fn look(subject: Subject, wants: &Receiver<Option<u32>>, to: &Sender<Event>) {
    let mut looker = Looker::new(subject);
    let mut map_of = None;
    loop {
        let look = looker.look(map_of);
        let until = Instant::now() + looker.pause(look.took);
        if to.send(Event::Look(Box::new(look))).is_err() {
            return;
        }
        loop {
            match wants.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // Away from a map nothing is missing.
                Ok(None) => map_of = None,
                Ok(of) => {
                    map_of = of;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Passes on what is typed, until there is no terminal any more.
fn input(to: &Sender<Event>) {
    loop {
        let event = match read() {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => key_of(key).map(Event::Key),
            Ok(Input::Resize(..)) => Some(Event::Resized),
            Ok(_) => None,
            Err(_) => Some(Event::Stop),
        };
        let is_over = matches!(event, Some(Event::Stop));
        if event.is_some_and(|event| to.send(event).is_err()) || is_over {
            return;
        }
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}

/// The terminal while it is ours.
struct Taken;

impl Taken {
    fn take() -> Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        enable_raw_mode().context("cannot take the terminal")?;
        let taken = Self;
        execute!(stdout(), EnterAlternateScreen, Hide).context("cannot take the terminal")?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
