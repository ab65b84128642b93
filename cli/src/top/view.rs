//! Draws the state on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as Cells, Sparkline, Table, TableState};

use super::state::{History, Mode, Order, Row, State};
use crate::duration;
use crate::lock::NamedLock;
use crate::output::Painter;
use crate::show;
use crate::text::{display_name, short_owner, truncate_middle};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const LONG_HOLD: Style = Style::new().fg(Color::Yellow);
/// Locks held for longer than this and than the 99th percentile are marked.
const MIN_LONG_HOLD: Duration = Duration::from_secs(60);
const HELP: &str = "\
up, down, PageUp, PageDown  select a lock
Enter                       show the selected lock
s                           change the sort order
/                           filter by name
space                       pause
Esc                         clear the filter, go back
q                           quit

WAITING   waiters in the queue
HELD FOR  how long the first holder has held the lock; yellow: unusually long
WAITED    how long the first waiter has waited
GRANTS    grants seen since dlock top started
LEASE     remaining lease

The second line has values since the servers started: the median and the 99th percentile of the\nhold and wait times, rounded up (1ms, 5ms, 10ms, 50ms, ...), and leases that expired while others\nwaited. Graphs are scaled to their maximum.";
const GRAPHS: u16 = 4;
/// A screen with fewer rows does not show counters and graphs.
const MIN_FULL_HEIGHT: u16 = 14;

pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let (counters, graphs) = if frame.area().height < MIN_FULL_HEIGHT {
        (0, 0)
    } else {
        (1, GRAPHS)
    };
    let rows = [
        Constraint::Length(1),
        Constraint::Length(counters),
        Constraint::Length(graphs),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, below, middle, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(header(state), head);
    if graphs > 0 {
        frame.render_widget(counters_line(state), below);
        draw_graphs(frame, state, middle);
    }
    match state.mode {
        Mode::Lock => draw_lock(frame, state, body),
        Mode::Help => frame.render_widget(Paragraph::new(HELP), body),
        Mode::List | Mode::Filter => draw_list(frame, state, body),
    }
    frame.render_widget(footer(state), foot);
}

fn header(state: &State) -> Line<'static> {
    let servers = match state.servers() {
        1 => String::new(),
        servers => format!("{servers} servers, "),
    };
    let mut text = format!(
        "dlock {} ({}): {servers}{} locks, {} waiting",
        state.deployment,
        state.role(),
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

/// Counters since the servers started.
fn counters_line(state: &State) -> Line<'static> {
    let percentiles = |histogram| {
        let percentile = |percent| {
            let bound = state.percentile(histogram, percent);
            bound.map_or("over a day".to_owned(), duration::format)
        };
        format!("{} (p99 {})", percentile(50), percentile(99))
    };
    Line::from(format!(
        "since start: held {}, waited {}, {} timeouts, {} expired, {} errors, {} late releases",
        percentiles("held_ms"),
        percentiles("waited_ms"),
        state.counter("wait_timeouts"),
        state.counter("expired_contended"),
        state.errors(),
        state.counter("errors_late_releases"),
    ))
}

fn draw_graphs(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let graphs: [(&str, &History); 4] = [
        ("acquired/s", &state.acquired.per_second),
        ("from queue/s", &state.grants_from_queue.per_second),
        ("expired/s", &state.expired.per_second),
        ("waiting", &state.waiting),
    ];
    let areas: [Rect; 4] = Layout::horizontal([Constraint::Fill(1); 4])
        .spacing(1)
        .areas(area);
    for ((title, history), area) in graphs.into_iter().zip(areas) {
        let width = usize::from(area.width.saturating_sub(1));
        let values = history.last(width);
        let max = values.iter().max().copied().unwrap_or(0);
        let block = Block::new()
            .borders(Borders::TOP)
            .title(format!("{title} {} (max {max}) ", history.newest()));
        let graph = Sparkline::default()
            .data(values)
            .style(Style::new().fg(Color::Cyan))
            .block(block);
        frame.render_widget(graph, area);
    }
}

/// A column of the list: title, width, and cell text.
type Column = (&'static str, u16, fn(&Row<'_>) -> String);

/// On a narrow screen, columns on the right are dropped first.
const COLUMNS: [Column; 7] = [
    ("WAITING", 7, |row| row.lock.waiting().to_string()),
    ("HELD FOR", 8, |row| {
        dash_if_free(row, duration::format(row.held()))
    }),
    ("WAITED", 6, |row| {
        if row.lock.waiting() == 0 {
            "-".to_owned()
        } else {
            duration::format(row.waited())
        }
    }),
    ("GRANTS", 6, |row| row.grants.to_string()),
    ("LEASE", 6, |row| {
        row.lock
            .holders()
            .first()
            .map_or("-".to_owned(), |holder| duration::format(holder.lease))
    }),
    ("KIND", 10, |row| row.lock.kind()),
    ("HELD BY", 30, |row| holders(row.lock)),
];

fn dash_if_free(row: &Row<'_>, text: String) -> String {
    if row.lock.holders().is_empty() {
        "-".to_owned()
    } else {
        text
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
    let long_hold = MIN_LONG_HOLD.max(state.percentile("held_ms", 99).unwrap_or(Duration::MAX));
    let lines = rows.iter().map(|row| {
        let name = truncate_middle(&display_name(&row.lock.name), name_width).into_owned();
        let cells = columns
            .iter()
            .map(|(_, width, text)| truncate_middle(&text(row), usize::from(*width)).into_owned());
        let style = if row.held() > long_hold {
            LONG_HOLD
        } else {
            Style::new()
        };
        Cells::new(std::iter::once(name).chain(cells).map(Cell::from)).style(style)
    });
    let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
    let titles = std::iter::once("LOCK").chain(columns.iter().map(|(title, _, _)| *title));
    let table = Table::new(lines, std::iter::once(Constraint::Fill(1)).chain(widths))
        .header(Cells::new(titles.map(Cell::from)).style(BOLD))
        .row_highlight_style(SELECTED);
    let mut position = TableState::new().with_selected(state.position());
    frame.render_stateful_widget(table, area, &mut position);
}

/// As `dlock show`.
fn draw_lock(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let name = display_name(state.selected_name().unwrap_or_default());
    let Some(lock) = state.selected() else {
        let text = format!("{name}: not held, no waiters");
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = show::write(lock, &mut text, Painter::plain());
    frame.render_widget(Paragraph::new(String::from_utf8_lossy(&text)), area);
}

fn footer(state: &State) -> Line<'static> {
    if let Some(error) = &state.error {
        return Line::styled(error.clone(), BOLD.fg(Color::Red));
    }
    if state.mode == Mode::Filter {
        return Line::from(format!("/{}_  (Enter applies, Esc clears)", state.filter));
    }
    let mut text = String::new();
    if state.is_paused {
        text += "PAUSED  ";
    }
    if !state.filter.is_empty() {
        text += &format!("/{}  ", state.filter);
    }
    text += match state.mode {
        Mode::Lock => "q quit  Esc back  space pause",
        Mode::Help => "any key goes back",
        _ => "q quit  ? help  up/down select  Enter show  / filter  space pause  s sort: ",
    };
    if state.mode == Mode::List {
        text += state.order.title();
        if state.order == Order::Grants {
            text += " (not all grants are seen)";
        }
    }
    Line::from(text)
}

#[cfg(test)]
mod tests;
