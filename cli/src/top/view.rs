//! Draws the state on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::state::{State, held, waited};
use crate::duration;
use crate::lock::NamedLock;
use crate::table::Table;
use crate::text::{display_name, short_owner, truncate_middle};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// A screen with fewer rows shows no counters.
const MIN_FULL_HEIGHT: u16 = 14;

pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let counters = u16::from(frame.area().height >= MIN_FULL_HEIGHT);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(counters),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, below, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(header(state), head);
    frame.render_widget(counters_line(state), below);
    draw_list(frame, state, body);
    frame.render_widget(footer(state), foot);
}

fn header(state: &State) -> Line<'static> {
    let servers = match state.sample.servers {
        1 => String::new(),
        servers => format!("{servers} servers, "),
    };
    let mut text = format!(
        "dlock {} ({}): {servers}{} locks, {} waiting",
        state.deployment,
        state.sample.role,
        state.counter("locks"),
        state.counter("waiters")
    );
    let queued = state.counter("waiters_queued");
    if queued > 0 {
        text += &format!(" ({queued} by inbox)");
    }
    let longest = state.counter("longest_wait_ms");
    if longest > 0 {
        text += &format!(
            ", the longest for {}",
            duration::format(Duration::from_millis(longest))
        );
    }
    let grace = state.counter("grace_left_ms");
    if grace > 0 {
        text += &format!(", GRACE for {}", duration::format(Duration::from_millis(grace)));
    }
    Line::styled(text, BOLD)
}

/// Rates, and counters since the servers started.
fn counters_line(state: &State) -> Line<'static> {
    Line::from(format!(
        "per second: {} acquired, {} from queue, {} expired; since start: {} timeouts, {} expired, {} errors, \
         {} late releases",
        state.acquired.per_second,
        state.grants_from_queue.per_second,
        state.expired.per_second,
        state.counter("wait_timeouts"),
        state.counter("expired_contended"),
        state.errors(),
        state.counter("errors_late_releases"),
    ))
}

/// All columns, and on a narrow screen what the person on call needs most.
const COLUMNS: [&str; 7] = [
    "LOCK",
    ">WAITING",
    ">HELD FOR",
    ">WAITED",
    ">LEASE",
    "KIND",
    "HELD BY",
];
const NARROW_COLUMNS: [&str; 4] = ["LOCK", ">WAITING", ">HELD FOR", "HELD BY"];
const MIN_FULL_WIDTH: usize = 80;
/// What columns other than names and holders take, with their spaces.
const OTHERS: usize = 49;
const NARROW_OTHERS: usize = 21;
/// On a screen without room for it, the last columns are cut off.
const MIN_NAME_WIDTH: usize = 12;

/// The locks as a table that fits on the screen.
fn list(locks: &[&NamedLock], width: usize) -> Table {
    let is_full = width >= MIN_FULL_WIDTH;
    let (mut table, others) = match is_full {
        true => (Table::new(&COLUMNS), OTHERS),
        false => (Table::new(&NARROW_COLUMNS), NARROW_OTHERS),
    };
    let name_width = (width.saturating_sub(others) / 2).max(MIN_NAME_WIDTH);
    for lock in locks {
        let mut cells = vec![
            truncate_middle(&display_name(&lock.name), name_width).into_owned(),
            lock.waiting().to_string(),
            dash_if(lock.holders().is_empty(), held(lock)),
        ];
        if is_full {
            let lease = lock.holders().first().map(|holder| holder.lease);
            cells.extend([
                dash_if(lock.waiting() == 0, waited(lock)),
                dash_if(lease.is_none(), lease.unwrap_or_default()),
                lock.kind(),
            ]);
        }
        cells.push(lock.held_by(short_owner, name_width));
        table.row(cells);
    }
    table
}

fn dash_if(is_missing: bool, time: Duration) -> String {
    match is_missing {
        true => "-".to_owned(),
        false => duration::format(time),
    }
}

fn draw_list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let mut rows = state.rows();
    rows.truncate(usize::from(area.height));
    let mut lines: Vec<Line<'_>> = list(&rows, usize::from(area.width))
        .lines()
        .into_iter()
        .map(Line::from)
        .collect();
    if let Some(titles) = lines.first_mut() {
        titles.style = BOLD;
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn footer(state: &State) -> Line<'static> {
    match &state.error {
        Some(error) => Line::styled(error.clone(), BOLD.fg(Color::Red)),
        None => Line::from(format!("q quit  s sort: {}", state.order.title())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_screen_keeps_who_holds_the_lock() {
        let titles = |width| list(&[], width).lines().concat();
        assert_eq!(
            titles(80),
            "LOCK  WAITING  HELD FOR  WAITED  LEASE  KIND  HELD BY"
        );
        assert_eq!(titles(79), "LOCK  WAITING  HELD FOR  HELD BY");
    }
}
