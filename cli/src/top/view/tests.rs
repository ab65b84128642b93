use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::state::tests::{sample, state, three};
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
fn wide_screen_shows_counters_and_all_columns() {
    let mut state = State::new("one:6379".to_owned());
    for acquired in [20, 60] {
        let counters = [
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
        state.update(sample(three(), &counters));
    }
    let screen = screen(&state, 120, 20);
    let header = "dlock one:6379 (primary): 3 locks, 3 waiting, the longest for 9.0s";
    assert_eq!(screen[0], header);
    let counters = "per second: 20 acquired, 0 from queue, 0 expired; since start: 4 timeouts, 5 expired, 3 errors, \
                    3 late releases";
    assert_eq!(screen[1], counters);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&screen[2])[..4], ["LOCK", "WAITING", "HELD", "FOR"]);
    let rows = [
        ["b", "2", "2.0s", "500ms", "30s", "mutex", "owner-2"],
        ["c", "0", "3.0s", "-", "30s", "mutex", "owner-3"],
    ];
    assert_eq!([words(&screen[3]), words(&screen[5])], rows);
    assert!(screen[19].contains("s sort: most waiting"), "{screen:#?}");
}

#[test]
fn every_size_of_screen_can_be_drawn() {
    for width in [1, 2, 7, 16, 23, 24, 25, 33, 60] {
        for height in [1, 2, 3, 5, 13, 14, 15] {
            screen(&state(three()), width, height);
        }
    }
}
