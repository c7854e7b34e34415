use super::*;
use Key::{Backspace, Char, Down, End, Enter, Escape, Home, Tab, Up};

fn process(pid: u32, name: &str, service: &str, resident: u64, huge: Option<u64>) -> Process {
    Process {
        pid,
        name: name.to_string(),
        service: service.to_string(),
        figures: Figures {
            resident_bytes: resident,
            huge_bytes: huge,
            ..Figures::default()
        },
        doing: if huge.is_some() { "managed" } else { "no rule" }.to_string(),
        ..Process::default()
    }
}

fn state() -> State {
    let mut state = State::new(Level::Services, Column::Resident);
    state.take(Look {
        processes: vec![
            process(10, "redis-server", "redis.service", 100, Some(80)),
            process(11, "redis-server", "redis.service", 50, None),
            process(20, "mysqld", "mariadb.service", 400, Some(10)),
            process(30, "bash", "session-1.scope", 5, Some(0)),
        ],
        ..Look::default()
    });
    state
}

fn names(state: &State) -> Vec<String> {
    state.rows().into_iter().map(|row| row.name).collect()
}

fn press(state: &mut State, keys: &[Key]) {
    keys.iter().for_each(|key| state.press(*key));
}

#[test]
fn a_service_has_the_sums_of_its_processes_and_says_what_is_done_with_how_many() {
    let rows = state().rows();
    let redis = &rows[1];
    assert_eq!((redis.name.as_str(), redis.count), ("redis.service", 2));
    assert_eq!(
        (redis.figures.resident_bytes, redis.figures.huge_bytes),
        (150, Some(80))
    );
    assert_eq!(redis.doing, "1 managed, 1 no rule");
    assert_eq!(rows[0].doing, "managed");
}

#[test]
fn rows_are_sorted_by_any_column_and_either_way() {
    let mut state = state();
    let (redis, maria, session) = ("redis.service", "mariadb.service", "session-1.scope");
    assert_eq!(names(&state), [maria, redis, session]);
    press(&mut state, &[Char('>')]);
    assert_eq!(
        (state.sort, names(&state)),
        (Column::Huge, vec![redis.into(), maria.into(), session.into()])
    );
    press(&mut state, &[Char('r')]);
    assert_eq!(names(&state), [session, maria, redis]);
    press(&mut state, &[Char('1')]);
    assert_eq!((state.sort, state.reverse), (Column::Name, false));
    assert_eq!(names(&state), [maria, redis, session]);
    press(&mut state, &[Char('1')]);
    assert_eq!(names(&state), [session, redis, maria]);
}

#[test]
fn enter_goes_from_services_to_processes_to_a_map_and_escape_back_to_where_it_was() {
    let mut state = state();
    press(&mut state, &[Down, Enter]);
    assert_eq!(state.level, Level::Processes(Some("redis.service".to_string())));
    assert_eq!(state.rows().len(), 2);
    press(&mut state, &[Down, Enter]);
    assert_eq!(
        (state.wants_map(), state.process().map(|p| p.pid)),
        (Some(11), Some(11))
    );
    press(&mut state, &[Escape]);
    assert_eq!(state.selected(&state.rows()), 1);
    press(&mut state, &[Escape]);
    assert_eq!((&state.level, state.selected(&state.rows())), (&Level::Services, 1));
    press(&mut state, &[Escape]);
    assert!(!state.ended, "only q leaves");
    press(&mut state, &[Tab]);
    assert_eq!((&state.level, state.rows().len()), (&Level::Processes(None), 4));
}

#[test]
fn the_selection_stays_with_its_row_and_not_with_its_place() {
    let mut state = state();
    press(&mut state, &[Tab, End]);
    assert_eq!(state.rows()[state.selected(&state.rows())].count, 30);
    let mut look = state.look.clone();
    look.processes[3].figures.resident_bytes = 10_000;
    state.take(look.clone());
    assert_eq!(state.selected(&state.rows()), 0, "it is the largest now");
    press(&mut state, &[Down, Up, Up, Home]);
    look.processes.clear();
    state.take(look);
    press(&mut state, &[Down, Enter, Key::PageDown]);
    assert_eq!((state.rows().len(), state.selected(&state.rows())), (0, 0));
}

#[test]
fn a_filter_is_typed_and_keys_are_characters_meanwhile() {
    let mut state = state();
    press(
        &mut state,
        &[Tab, Char('/'), Char('Q'), Char('l'), Char('x'), Backspace],
    );
    assert!(state.editing && !state.ended);
    assert_eq!(
        (state.filter.as_str(), names(&state)),
        ("Ql", vec!["mysqld".to_string()])
    );
    press(&mut state, &[Enter, Escape]);
    assert_eq!(
        (state.editing, state.filter.as_str(), state.rows().len()),
        (false, "", 4)
    );
    press(&mut state, &[Char('/'), Char('3'), Enter]);
    assert_eq!(names(&state), ["bash"], "by its number");
    press(&mut state, &[Char('/'), Escape]);
    assert_eq!(state.rows().len(), 4);
    press(&mut state, &[Char('/'), Key::Interrupt]);
    assert!(state.ended, "Ctrl-C always leaves");
}

#[test]
fn while_paused_nothing_changes_but_a_map_that_is_missing_comes() {
    let mut state = state();
    press(&mut state, &[Tab, Char('p')]);
    let map = |pid| {
        Some(Map {
            pid,
            regions: Err("made up".to_string()),
        })
    };
    state.take(Look {
        map: map(10),
        ..Look::default()
    });
    assert_eq!(state.rows().len(), 4);
    press(&mut state, &[Enter]);
    assert!(state.map().is_none(), "mysqld's is wanted");
    state.take(Look {
        map: map(20),
        ..Look::default()
    });
    assert!(state.map().is_some() && state.look.processes.len() == 4);
    press(&mut state, &[Char(' ')]);
    state.take(Look::default());
    assert!(state.look.processes.is_empty());
}

#[test]
fn any_key_closes_the_help_and_does_nothing_else() {
    let mut state = state();
    press(&mut state, &[Char('?'), Char('q')]);
    assert!(!state.help && !state.ended);
    press(&mut state, &[Char('q')]);
    assert!(state.ended);
}
