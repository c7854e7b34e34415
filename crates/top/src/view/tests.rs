//! Made-up looks, drawn.

use mega_core::units::{BasePages, HUGE_PAGE_BYTES};
use mega_linux::inspect::regions::{MappedRegion, RegionMap};
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use ratatui::Terminal;

use super::*;
use crate::daemon::Daemon;
use crate::figures::{Column, Figures};
use crate::seen::{Look, Map, Process};
use crate::state::Key;

const MIB: u64 = 1 << 20;

fn process(pid: u32, name: &str, service: &str, mib: u64, huge: u64) -> Process {
    Process {
        pid,
        name: name.to_string(),
        service: service.to_string(),
        figures: Figures {
            resident_bytes: mib * MIB,
            huge_bytes: Some(huge * MIB),
            waste_bytes: Some(huge * MIB / 20),
            ..Figures::default()
        },
        doing: "no rule".to_string(),
        ..Process::default()
    }
}

fn look() -> Look {
    let mut redis = process(4242, "redis-server", "redis.service", 6144, 5900);
    redis.figures.gain = Some(0.084);
    redis.figures.stall = Some(0.004);
    redis.figures.promotions = Some(2950);
    redis.doing = "managed".to_string();
    redis.why = vec![
        "rule redis, policy auto".to_string(),
        "refused: no free block (12), budget (3)".to_string(),
    ];
    let mut hidden = process(77, "secret", "session-2.scope", 128, 0);
    hidden.figures.huge_bytes = None;
    hidden.figures.waste_bytes = None;
    Look {
        processes: vec![redis, process(4300, "mysqld", "mariadb.service", 2048, 100), hidden],
        daemon: Ok(Daemon {
            pid: 900,
            rules: 3,
            ..Daemon::default()
        }),
        scanner: Ok("ebpf".to_string()),
        memory: Some([64 << 30, 40 << 30, 6 << 30]),
        ..Look::default()
    }
}

fn regions() -> RegionMap {
    let region = |number: u64| MappedRegion {
        address: number * HUGE_PAGE_BYTES,
        mapped: BasePages(if number % 2 == 0 { 512 } else { 128 }),
        accessed: None,
        waste: (number != 105).then_some(BasePages(if number == 100 { 256 } else { 0 })),
        huge: number % 2 == 0,
    };
    RegionMap {
        vmas: Vec::new(),
        regions: (100..120).map(region).chain((5000..5004).map(region)).collect(),
        elsewhere_bytes: 3 * MIB,
        read: (10, 11),
    }
}

fn state() -> State {
    let mut state = State::new(Level::Services, Column::Resident);
    state.take(look());
    state
}

fn terminal(state: &mut State, width: u16, height: u16, palette: Palette) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, palette)).unwrap();
    terminal
}

fn screen(state: &mut State, width: u16, height: u16) -> String {
    let terminal = terminal(state, width, height, Palette::Plain);
    let buffer = terminal.backend().buffer();
    let row = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..height).map(|y| row(y).trim_end().to_string()).collect();
    lines.join("\n")
}

/// Compares with what is recorded; MEGA_TOP_RECORD=1 records.
fn assert_snapshot(name: &str, found: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/view/snapshots/{name}.txt"));
    if std::env::var_os("MEGA_TOP_RECORD").is_some() {
        std::fs::write(&path, format!("{found}\n")).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        wanted.trim_end_matches('\n'),
        found.trim_end_matches('\n'),
        "{name}:\n{found}"
    );
}

#[test]
fn services_are_drawn_as_recorded_on_terminals_of_any_size() {
    assert_snapshot("services-80x24", &screen(&mut state(), 80, 24));
    assert_snapshot("services-120x40", &screen(&mut state(), 120, 40));
    let small = screen(&mut state(), 40, 10);
    assert!(
        small.contains("too small") && small.lines().all(|line| line.len() <= 40),
        "{small}"
    );
    for (width, height) in [(1, 1), (80, 16), (79, 40), (500, 300)] {
        screen(&mut state(), width, height);
    }
}

#[test]
fn processes_their_filter_the_pause_and_the_help_are_drawn_as_recorded() {
    let mut state = state();
    for key in [Key::Tab, Key::Char('p'), Key::Char('/'), Key::Char('s')] {
        state.press(key);
    }
    assert_snapshot("processes-80x24", &screen(&mut state, 80, 24));
    state.press(Key::Escape);
    state.press(Key::Char('?'));
    assert_snapshot("help-80x24", &screen(&mut state, 80, 24));
}

#[test]
fn a_map_is_drawn_as_recorded_and_scrolls_to_its_end_and_no_further() {
    let mut state = state();
    state.press(Key::Tab);
    state.press(Key::Enter);
    let mut seen = look();
    seen.map = Some(Map {
        pid: 4242,
        regions: Ok(regions()),
    });
    state.take(seen);
    assert_snapshot("map-80x24", &screen(&mut state, 80, 24));
    state.press(Key::End);
    let end = screen(&mut state, 80, 16);
    state.press(Key::PageDown);
    assert_eq!(screen(&mut state, 80, 16), end);
    let drawn = terminal(&mut state, 80, 24, Palette::Colour);
    let coloured = drawn
        .backend()
        .buffer()
        .content()
        .iter()
        .filter(|cell| matches!(cell.bg, Color::Indexed(_)));
    assert!(coloured.count() >= 24 * 2);
}

#[test]
fn without_colours_no_cell_has_one() {
    let mut state = state();
    state.press(Key::Char('p'));
    let drawn = terminal(&mut state, 80, 24, Palette::Plain);
    let content = drawn.backend().buffer().content();
    assert!(content
        .iter()
        .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let drawn = terminal(&mut state, 80, 24, Palette::Colour);
    let content = drawn.backend().buffer().content();
    assert!(content.iter().any(|cell| cell.fg != Color::Reset));
}

#[test]
fn the_selected_row_stays_in_sight_among_thousands_and_is_marked_without_colour() {
    let mut state = State::new(Level::Processes(None), Column::Count);
    state.take(Look {
        processes: (1..=5000).map(|pid| process(pid, "p", "s.service", 100, 0)).collect(),
        ..Look::default()
    });
    for _ in 0..3 {
        state.press(Key::PageDown);
        let text = screen(&mut state, 80, 24);
        assert_eq!(text.lines().filter(|line| line.ends_with('<')).count(), 1, "{text}");
    }
    state.press(Key::End);
    let text = screen(&mut state, 80, 24);
    assert!(
        text.contains("5000 of 5000") && text.contains("p ") && text.contains("   5000 "),
        "{text}"
    );
}

#[test]
fn wide_characters_do_not_move_the_columns() {
    let mut state = state();
    let mut seen = look();
    seen.processes[0].service = "データベース-とても長い名前の.service".to_string();
    state.take(seen);
    let drawn = terminal(&mut state, 80, 24, Palette::Plain);
    let buffer = drawn.backend().buffer();
    let column = |y| (0..80u16).find(|x| buffer[(*x, y)].symbol() == "%");
    assert!(
        column(3).is_some() && column(3) == column(4),
        "{:?} {:?}",
        column(3),
        column(4)
    );
}
