use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::state::tests::{lock, press, sample, state, three};
use super::*;

/// The lines of a screen of this size.
fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, state)).expect("a drawing");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol().to_owned())
            .collect::<String>()
    };
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn wide_screen_shows_all_columns() {
    let mut state = State::new("one:6379".to_owned());
    for acquired in [0, 20, 60] {
        let counter = [
            ("acquired", acquired),
            ("locks", 3),
            ("waiters", 3),
            ("longest_wait_ms", 9_000),
            ("wait_timeouts", 4),
            ("expired_contended", 5),
            ("errors_stale", 2),
            ("errors_notheld", 1),
            ("errors_late_releases", 3),
        ];
        let mut sample = sample(three(), &counter);
        let held = vec![
            (Some(50), 3),
            (Some(5_000), 197),
            (Some(60_000), 198),
            (None, 200),
        ];
        let waited = vec![(Some(50), 60), (Some(1_000), 99), (None, 100)];
        sample.histograms = [("held_ms", held), ("waited_ms", waited)]
            .map(|(field, buckets)| (field.to_owned(), buckets))
            .into();
        state.update(sample);
    }
    let screen = screen(&state, 110, 20);
    assert_eq!(
        screen[0],
        "dlock one:6379 (primary): 3 locks, 3 waiting, the longest for 9.0s"
    );
    assert_eq!(
        screen[1],
        "since start: held 5.0s (p99 1m00s), waited 50ms (p99 1.0s), 4 timeouts, 5 expired, 3 errors, 3 late releases"
    );
    assert!(screen[2].starts_with("acquired/s 20 (max 20) "), "{}", screen[2]);
    assert!(screen[5].contains('█'), "{screen:#?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&screen[6])[..4], ["LOCK", "WAITING", "HELD", "FOR"]);
    assert_eq!(
        words(&screen[7]),
        ["b", "2", "2.0s", "500ms", "0", "30s", "mutex", "owner-2"]
    );
    assert_eq!(
        words(&screen[9]),
        ["c", "0", "3.0s", "-", "0", "30s", "mutex", "owner-3"]
    );
    assert!(screen[19].contains("s sort: most waiting"), "{screen:#?}");
}

#[test]
fn header_counts_waiters_of_inboxes_if_there_are_any() {
    let mut state = State::new("one:6379".to_owned());
    for (queued, expected) in [(0, "3 locks, 3 waiting"), (2, "3 locks, 3 waiting (2 by inbox)")] {
        let counters = [("locks", 3), ("waiters", 3), ("waiters_queued", queued)];
        state.update(sample(three(), &counters));
        let screen = screen(&state, 110, 20);
        assert_eq!(screen[0], format!("dlock one:6379 (primary): {expected}"));
    }
}

#[test]
fn small_screen_drops_columns_and_graphs() {
    let long = vec![lock(
        "a-name-that-is-much-too-long-for-this-screen",
        &[1],
        1_000,
        &[5, 4],
    )];
    let state = state(long);
    let narrow = screen(&state, 26, 8);
    assert!(
        narrow[1].starts_with("LOCK") && narrow[1].ends_with("WAITING"),
        "{narrow:#?}"
    );
    assert!(narrow[2].contains('…') && narrow[2].ends_with('2'), "{narrow:#?}");
    let usual = screen(&state, 40, 10);
    assert!(
        usual[1].starts_with("LOCK") && usual[1].ends_with("WAITED"),
        "{usual:#?}"
    );
    assert!(usual[2].contains('…') && usual[2].ends_with("5ms"), "{usual:#?}");
    for width in [1, 2, 7, 16, 23, 24, 25, 33, 60] {
        for height in [1, 2, 3, 5, 13, 14, 15] {
            screen(&state, width, height);
        }
    }
}

#[test]
fn lock_view_shows_holders_and_waiters() {
    let mut state = state(three());
    press(&mut state, "\n");
    let display_name = screen(&state, 100, 20).join("\n");
    for words in [
        "b: mutex, held by 1",
        "owner-2      2      1      2.0s    30s",
        "Waiters: 2",
        "2  waiter  mutex   400ms     none",
        "Esc back",
    ] {
        assert!(display_name.contains(words), "{words}:\n{display_name}");
    }
    state.update(sample(vec![], &[]));
    assert!(screen(&state, 100, 20).join("\n").contains("b: not held"));
}

#[test]
fn footer_shows_filter_pause_and_error() {
    let mut state = state(three());
    let foot = |state: &State| screen(state, 100, 20)[19].clone();
    press(&mut state, "/xy");
    assert!(foot(&state).starts_with("/xy_"));
    press(&mut state, "\n ");
    assert!(
        foot(&state).starts_with("PAUSED  /xy  q quit"),
        "{}",
        foot(&state)
    );
    state.set_error("cannot connect".to_owned());
    assert_eq!(foot(&state), "cannot connect");
}
