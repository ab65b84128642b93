//! Draws the state on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as Cells, Table};

use super::state::{State, held, waited};
use crate::duration;
use crate::lock::NamedLock;
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

/// A column of the list: title, width, and cell text.
type Column = (&'static str, u16, fn(&NamedLock) -> String);

/// On a narrow screen, columns on the right are dropped first.
const COLUMNS: [Column; 6] = [
    ("WAITING", 7, |lock| lock.waiting().to_string()),
    ("HELD FOR", 8, |lock| {
        dash_if(lock.holders().is_empty(), held(lock))
    }),
    ("WAITED", 6, |lock| dash_if(lock.waiting() == 0, waited(lock))),
    ("LEASE", 6, |lock| {
        let lease = lock.holders().first().map(|holder| holder.lease);
        dash_if(lease.is_none(), lease.unwrap_or_default())
    }),
    ("KIND", 10, NamedLock::kind),
    ("HELD BY", 30, holders),
];

fn dash_if(is_missing: bool, time: Duration) -> String {
    match is_missing {
        true => "-".to_owned(),
        false => duration::format(time),
    }
}

fn holders(lock: &NamedLock) -> String {
    match lock.holders() {
        [] => "-".to_owned(),
        [one] => short_owner(one.owner.as_bytes()),
        [first, others @ ..] => format!("{} +{}", short_owner(first.owner.as_bytes()), others.len()),
    }
}

fn draw_list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    const NAME: u16 = 16;
    let mut room = area.width.saturating_sub(NAME);
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .take_while(|(_, width, _)| {
            let fits = room > *width;
            room = room.saturating_sub(width + 1);
            fits
        })
        .collect();
    let name_width = usize::from(NAME + room);
    let rows = state.rows();
    let lines = rows.iter().map(|lock| {
        let name = truncate_middle(&display_name(&lock.name), name_width).into_owned();
        let cells = columns
            .iter()
            .map(|(_, width, text)| truncate_middle(&text(lock), usize::from(*width)).into_owned());
        Cells::new(std::iter::once(name).chain(cells).map(Cell::from))
    });
    let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
    let titles = std::iter::once("LOCK").chain(columns.iter().map(|(title, _, _)| *title));
    let table = Table::new(lines, std::iter::once(Constraint::Fill(1)).chain(widths))
        .header(Cells::new(titles.map(Cell::from)).style(BOLD));
    frame.render_widget(table, area);
}

fn footer(state: &State) -> Line<'static> {
    match &state.error {
        Some(error) => Line::styled(error.clone(), BOLD.fg(Color::Red)),
        None => Line::from(format!("q quit  s sort: {}", state.order.title())),
    }
}
