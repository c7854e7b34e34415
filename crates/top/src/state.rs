//! What is on the screen. Keys and looks change it; nothing else does.

use std::collections::BTreeMap;

use crate::figures::{Column, Figures};
use crate::seen::{Look, Map, Process};

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// One up.
    Up,
    /// One down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Into what is selected.
    Enter,
    /// Back.
    Escape,
    /// Delete a character.
    Backspace,
    /// The next view.
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// A character.
    Char(char),
}

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// Services.
    Services,
    /// Processes: of this service, or all.
    Processes(Option<String>),
    /// A process's regions.
    Map(u32),
}

/// What identifies a row, wherever it moves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// A service by its name.
    Service(String),
    /// A process by its number.
    Process(u32),
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Which.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// The process's number, or how many there are.
    pub count: u32,
    /// Its figures.
    pub figures: Figures,
    /// What is being done.
    pub doing: String,
    /// Why, and why not more.
    pub why: Vec<String>,
}

/// The state.
#[derive(Debug, Clone)]
pub struct State {
    /// The last look.
    pub look: Look,
    /// What is shown.
    pub level: Level,
    /// By which column.
    pub sort: Column,
    /// The other way around.
    pub reverse: bool,
    /// Rows must contain this.
    pub filter: String,
    /// The filter is being typed.
    pub editing: bool,
    /// New looks are not shown.
    pub paused: bool,
    /// The help is open.
    pub help: bool,
    /// Lines by which a map is scrolled.
    pub scroll: usize,
    /// It is over.
    pub ended: bool,
    selected: Option<Id>,
    behind: Vec<(Level, Option<Id>, String)>,
    page: usize,
}

impl State {
    /// Before the first look.
    #[must_use]
    pub fn new(level: Level, sort: Column) -> Self {
        Self {
            look: Look::default(),
            level,
            sort,
            reverse: false,
            filter: String::new(),
            editing: false,
            paused: false,
            help: false,
            scroll: 0,
            ended: false,
            selected: None,
            behind: Vec::new(),
            page: 10,
        }
    }

    /// Rows on a page, as the view has found.
    pub fn set_page(&mut self, rows: usize) {
        self.page = rows.max(1);
    }

    /// A new look. While paused only a map that is not there yet is taken.
    pub fn take(&mut self, look: Look) {
        if !self.paused {
            self.look = look;
        } else if self.map().is_none() {
            self.look.map = look.map;
        }
    }

    /// The process whose map is wanted.
    #[must_use]
    pub fn wants_map(&self) -> Option<u32> {
        match self.level {
            Level::Map(pid) => Some(pid),
            _ => None,
        }
    }

    /// The map of the process that is shown.
    #[must_use]
    pub fn map(&self) -> Option<&Map> {
        self.look.map.as_ref().filter(|map| self.wants_map() == Some(map.pid))
    }

    /// The process whose map is shown, if it is there.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        let pid = self.wants_map()?;
        self.look.processes.iter().find(|process| process.pid == pid)
    }

    /// The rows, filtered and sorted.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = match &self.level {
            Level::Services => services(&self.look.processes),
            Level::Processes(of) => {
                let of_service = |process: &&Process| of.as_ref().is_none_or(|service| process.service == *service);
                self.look.processes.iter().filter(of_service).map(process_row).collect()
            }
            Level::Map(_) => Vec::new(),
        };
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| {
            let number = row.count.to_string();
            let is_number = matches!(row.id, Id::Process(_)) && number.contains(&wanted);
            is_number || row.name.to_lowercase().contains(&wanted) || row.doing.to_lowercase().contains(&wanted)
        });
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Column::Name => a.name.cmp(&b.name),
                Column::Doing => a.doing.cmp(&b.doing),
                Column::Count => a.count.cmp(&b.count),
                column => column.compare(&a.figures, &b.figures),
            };
            let order = if self.reverse { order.reverse() } else { order };
            order.then_with(|| a.id.cmp(&b.id))
        });
        rows
    }

    /// The selected row's place. What is gone leaves the selection at the first.
    #[must_use]
    pub fn selected(&self, rows: &[Row]) -> usize {
        let at = |id: &Id| rows.iter().position(|row| row.id == *id);
        self.selected.as_ref().and_then(at).unwrap_or(0)
    }

    /// A key is pressed.
    pub fn press(&mut self, key: Key) {
        match key {
            Key::Interrupt => self.ended = true,
            key if self.editing => self.edit(key),
            _ if self.help => self.help = false,
            Key::Char('q') => self.ended = true,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char(' ' | 'p') => self.paused = !self.paused,
            Key::Up | Key::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|at, _| at + 1),
            Key::PageUp => self.go(|at, page| at.saturating_sub(page)),
            Key::PageDown => self.go(|at, page| at + page),
            Key::Home | Key::Char('g') => self.go(|_, _| 0),
            Key::End | Key::Char('G') => self.go(|_, _| usize::MAX),
            Key::Escape | Key::Backspace => self.back(),
            _ if self.wants_map().is_some() => {}
            Key::Enter => self.enter(),
            Key::Tab => self.other_view(),
            Key::Char('/') => self.editing = true,
            Key::Char('>' | 's') => self.sort_by(self.sort.beside(true)),
            Key::Char('<' | 'S') => self.sort_by(self.sort.beside(false)),
            Key::Char('r') => self.reverse = !self.reverse,
            Key::Char(digit) => {
                let number = digit.to_digit(10).and_then(|n| (n as usize).checked_sub(1));
                if let Some(column) = number.and_then(|n| Column::ALL.get(n)) {
                    // The same column again is the other way around.
                    if self.sort == *column {
                        self.reverse = !self.reverse;
                    } else {
                        self.sort_by(*column);
                    }
                }
            }
        }
    }

    fn sort_by(&mut self, column: Column) {
        (self.sort, self.reverse) = (column, false);
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Enter => self.editing = false,
            Key::Escape => {
                self.editing = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            // As long as a name that anything has.
            Key::Char(c) if self.filter.chars().count() < 64 => self.filter.push(c),
            _ => {}
        }
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        if self.wants_map().is_some() {
            // The view knows how many lines there are, and bounds it.
            self.scroll = to(self.scroll, self.page);
            return;
        }
        let rows = self.rows();
        let at = to(self.selected(&rows), self.page).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.id.clone());
    }

    fn enter(&mut self) {
        let rows = self.rows();
        let Some(row) = rows.get(self.selected(&rows)) else {
            return;
        };
        let next = match &row.id {
            Id::Service(name) => Level::Processes(Some(name.clone())),
            Id::Process(pid) => Level::Map(*pid),
        };
        let level = std::mem::replace(&mut self.level, next);
        let filter = std::mem::take(&mut self.filter);
        self.behind.push((level, Some(row.id.clone()), filter));
        self.selected = None;
        self.scroll = 0;
    }

    /// First the filter goes, then the level.
    fn back(&mut self) {
        if !self.filter.is_empty() {
            self.filter.clear();
        } else if let Some((level, selected, filter)) = self.behind.pop() {
            (self.level, self.selected, self.filter) = (level, selected, filter);
        }
    }

    fn other_view(&mut self) {
        self.level = match self.level {
            Level::Services => Level::Processes(None),
            _ => Level::Services,
        };
        self.selected = None;
        self.behind.clear();
    }
}

fn process_row(process: &Process) -> Row {
    Row {
        id: Id::Process(process.pid),
        name: process.name.clone(),
        count: process.pid,
        figures: process.figures,
        doing: process.doing.clone(),
        why: process.why.clone(),
    }
}

/// Services with the sums of their processes.
#[must_use]
pub fn services(processes: &[Process]) -> Vec<Row> {
    let mut of: BTreeMap<&str, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        of.entry(&process.service).or_default().push(process);
    }
    of.into_iter()
        .map(|(name, processes)| service_row(name, &processes))
        .collect()
}

fn service_row(name: &str, processes: &[&Process]) -> Row {
    let sum = processes
        .iter()
        .fold(Figures::default(), |sum, process| sum.and(&process.figures));
    let mut doing: BTreeMap<&str, usize> = BTreeMap::new();
    let mut why: BTreeMap<&str, usize> = BTreeMap::new();
    for process in processes {
        *doing.entry(&process.doing).or_default() += 1;
        process.why.iter().for_each(|line| *why.entry(line).or_default() += 1);
    }
    let all = processes.len();
    let counted = |(text, count): (&str, usize)| match count {
        count if count == all => text.to_string(),
        count => format!("{count} {text}"),
    };
    // What most of them have comes first.
    let mut doing: Vec<_> = doing.into_iter().collect();
    doing.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut why: Vec<_> = why.into_iter().collect();
    why.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Row {
        id: Id::Service(name.to_string()),
        name: name.to_string(),
        count: u32::try_from(all).unwrap_or(u32::MAX),
        figures: sum,
        doing: doing.into_iter().map(counted).collect::<Vec<_>>().join(", "),
        why: why.into_iter().map(counted).collect(),
    }
}

#[cfg(test)]
mod tests;
