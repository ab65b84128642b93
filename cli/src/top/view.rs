//! How the state looks on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as Cells, Sparkline, Table, TableState};

use super::state::{History, Mode, Order, Row, State};
use crate::lock::{Named, kind};
use crate::span;
use crate::text::{cut, shown};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const GRAPHS: u16 = 4;
/// A lower screen has no room for counters and graphs.
const LOW: u16 = 14;

pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let (counters, graphs) = if frame.area().height < LOW {
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
    frame.render_widget(headline(state), head);
    if graphs > 0 {
        frame.render_widget(counted(state), below);
        draw_graphs(frame, state, middle);
    }
    match state.mode {
        Mode::Lock => draw_lock(frame, state, body),
        Mode::List | Mode::Filter => draw_list(frame, state, body),
    }
    frame.render_widget(footline(state), foot);
}

fn headline(state: &State) -> Line<'static> {
    let servers = match state.servers() {
        1 => String::new(),
        servers => format!("{servers} servers, "),
    };
    let mut text = format!(
        "dlock: {servers}{} locks, {} waiting",
        state.counted("locks"),
        state.counted("waiters")
    );
    let longest = state.counted("longest_wait_ms");
    if longest > 0 {
        text += &format!(", the longest for {}", span::show(Duration::from_millis(longest)));
    }
    let grace = state.counted("grace_left_ms");
    if grace > 0 {
        text += &format!(", GRACE for {}", span::show(Duration::from_millis(grace)));
    }
    Line::styled(text, BOLD)
}

/// What the servers have counted since they were started.
fn counted(state: &State) -> Line<'static> {
    let time = |field: &str| span::show(Duration::from_millis(state.counted(field)));
    let percentiles = |what| {
        let percentile = |which| time(&format!("{what}_ms_{which}"));
        format!("{} (p99 {})", percentile("p50"), percentile("p99"))
    };
    Line::from(format!(
        "held {}, waited {}, {} timeouts, {} expired awaited, {} errors, {} late releases",
        percentiles("held"),
        percentiles("waited"),
        state.counted("wait_timeouts"),
        state.counted("expired_contended"),
        state.errors(),
        state.counted("errors_late_releases"),
    ))
}

fn draw_graphs(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let graphs: [(&str, &History); 4] = [
        ("acquired/s", &state.acquired.per_second),
        ("handed over/s", &state.grants_from_queue.per_second),
        ("expired/s", &state.expired.per_second),
        ("waiting", &state.waiting),
    ];
    let areas: [Rect; 4] = Layout::horizontal([Constraint::Fill(1); 4])
        .spacing(1)
        .areas(area);
    for ((title, history), area) in graphs.into_iter().zip(areas) {
        let block = Block::new()
            .borders(Borders::TOP)
            .title(format!("{title} {} ", history.newest()));
        let width = usize::from(area.width.saturating_sub(1));
        let graph = Sparkline::default()
            .data(history.last(width))
            .style(Style::new().fg(Color::Cyan))
            .block(block);
        frame.render_widget(graph, area);
    }
}

/// A column of the list: its title, its width, and its text.
type Column = (&'static str, u16, fn(&Row<'_>) -> String);

/// Those on the right go first when the screen is narrow.
const COLUMNS: [Column; 7] = [
    ("WAITING", 7, |row| row.lock.waiting().to_string()),
    ("HELD FOR", 8, |row| dash_if_free(row, span::show(row.held()))),
    ("WAITED", 6, |row| {
        if row.lock.waiting() == 0 {
            "-".to_owned()
        } else {
            span::show(row.waited())
        }
    }),
    ("GRANTS", 6, |row| row.grants.to_string()),
    ("LEASE", 6, |row| {
        row.lock
            .holders()
            .first()
            .map_or("-".to_owned(), |holder| span::show(holder.lease))
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

fn holders(lock: &Named) -> String {
    match lock.holders() {
        [] => "-".to_owned(),
        [one] => shown(one.owner.as_bytes()),
        [first, others @ ..] => format!("{} +{}", shown(first.owner.as_bytes()), others.len()),
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
    let lines = rows.iter().map(|row| {
        let name = cut(&shown(&row.lock.name), name_width).into_owned();
        let cells = columns
            .iter()
            .map(|(_, width, text)| cut(&text(row), usize::from(*width)).into_owned());
        Cells::new(std::iter::once(name).chain(cells).map(Cell::from))
    });
    let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
    let titles = std::iter::once("LOCK").chain(columns.iter().map(|(title, _, _)| *title));
    let table = Table::new(lines, std::iter::once(Constraint::Fill(1)).chain(widths))
        .header(Cells::new(titles.map(Cell::from)).style(BOLD))
        .row_highlight_style(CHOSEN);
    let mut position = TableState::new().with_selected(state.position());
    frame.render_stateful_widget(table, area, &mut position);
}

fn draw_lock(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let name = shown(state.chosen_name().unwrap_or_default());
    let Some(lock) = state.chosen() else {
        let text = format!("{name}: nobody holds it, nobody waits for it");
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let mut lines = vec![
        Line::styled(format!("{name}  {}", lock.kind()), BOLD),
        Line::default(),
    ];
    for holder in lock.holders() {
        lines.push(Line::from(format!(
            "held by {} for {}, lease {}, {} holds, fence {}",
            shown(holder.owner.as_bytes()),
            span::show(holder.held),
            span::show(holder.lease),
            holder.holds,
            holder.fence
        )));
    }
    lines.push(Line::default());
    lines.push(Line::styled(format!("{} waiting", lock.waiting()), BOLD));
    for (n, waiter) in lock.waiters().iter().enumerate() {
        lines.push(Line::from(format!(
            "{:>4} {} ({}) for {}",
            n + 1,
            shown(waiter.owner.as_bytes()),
            kind(waiter.limit),
            span::show(waiter.waited)
        )));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn footline(state: &State) -> Line<'static> {
    if let Some(trouble) = &state.trouble {
        return Line::styled(trouble.clone(), BOLD.fg(Color::Red));
    }
    if state.mode == Mode::Filter {
        return Line::from(format!("/{}_  (Enter keeps it, Esc drops it)", state.filter));
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
        _ => "q quit  Enter look into  / filter  space pause  s sort: ",
    };
    if state.mode == Mode::List {
        text += state.order.title();
        if state.order == Order::Grants {
            text += " (those between two looks are missed)";
        }
    }
    Line::from(text)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
