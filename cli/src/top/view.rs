//! Draws the state on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
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

/// A name gets at least this many cells.
const MIN_NAME_WIDTH: u16 = 16;
/// The holders share what is left over with the names.
const MIN_HOLDERS_WIDTH: u16 = 16;
const MAX_HOLDERS_WIDTH: u16 = 30;

/// A column of the list.
struct Column {
    title: &'static str,
    width: u16,
    alignment: Alignment,
    /// Its rank: on a narrow screen, columns with larger numbers are left out first.
    need: u8,
    text: fn(&NamedLock) -> String,
}

/// From left to right.
const COLUMNS: [Column; 6] = [
    Column {
        title: "WAITING",
        width: 7,
        alignment: Alignment::Right,
        need: 3,
        text: |lock| lock.waiting().to_string(),
    },
    Column {
        title: "HELD FOR",
        width: 8,
        alignment: Alignment::Right,
        need: 2,
        text: |lock| dash_if(lock.holders().is_empty(), held(lock)),
    },
    Column {
        title: "WAITED",
        width: 6,
        alignment: Alignment::Right,
        need: 4,
        text: |lock| dash_if(lock.waiting() == 0, waited(lock)),
    },
    Column {
        title: "LEASE",
        width: 6,
        alignment: Alignment::Right,
        need: 5,
        text: |lock| {
            let lease = lock.holders().first().map(|holder| holder.lease);
            dash_if(lease.is_none(), lease.unwrap_or_default())
        },
    },
    Column {
        title: "KIND",
        width: 10,
        alignment: Alignment::Left,
        need: 6,
        text: NamedLock::kind,
    },
    Column {
        title: "HELD BY",
        width: MIN_HOLDERS_WIDTH,
        alignment: Alignment::Left,
        need: 1,
        text: holders,
    },
];

/// The columns for which there is room beside names, with their widths, and the width of names. What the person on call
/// needs least is left out first.
fn columns_in(width: u16) -> (Vec<(&'static Column, u16)>, u16) {
    let mut room = width.saturating_sub(MIN_NAME_WIDTH);
    let mut by_need: Vec<&Column> = COLUMNS.iter().collect();
    by_need.sort_by_key(|column| column.need);
    let fitting = by_need.into_iter().take_while(|column| {
        let fits = room > column.width;
        if fits {
            room -= column.width + 1;
        }
        fits
    });
    let needs: Vec<u8> = fitting.map(|column| column.need).collect();
    let shown = COLUMNS.iter().filter(|column| needs.contains(&column.need));
    let wider = (room / 2).min(MAX_HOLDERS_WIDTH - MIN_HOLDERS_WIDTH);
    let mut name_width = MIN_NAME_WIDTH + room;
    let columns = shown.map(|column| match column.width {
        MIN_HOLDERS_WIDTH => {
            name_width -= wider;
            (column, MIN_HOLDERS_WIDTH + wider)
        }
        width => (column, width),
    });
    (columns.collect(), name_width)
}

impl Column {
    fn cell(&self, text: String) -> Cell<'static> {
        Cell::from(Line::from(text).alignment(self.alignment))
    }
}

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
    let (columns, name_width) = columns_in(area.width);
    let rows = state.rows();
    let lines = rows.iter().map(|lock| {
        let name = truncate_middle(&display_name(&lock.name), usize::from(name_width)).into_owned();
        let cells = columns.iter().map(|(column, width)| {
            let text = (column.text)(lock);
            column.cell(truncate_middle(&text, usize::from(*width)).into_owned())
        });
        Cells::new(std::iter::once(Cell::from(name)).chain(cells))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let titles = columns
        .iter()
        .map(|(column, _)| column.cell(column.title.to_owned()));
    let titles = std::iter::once(Cell::from("LOCK")).chain(titles);
    let table = Table::new(lines, std::iter::once(Constraint::Fill(1)).chain(widths))
        .header(Cells::new(titles).style(BOLD));
    frame.render_widget(table, area);
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
        let shown = |width| {
            let (columns, name_width) = columns_in(width);
            let titles: Vec<&str> = columns.iter().map(|(column, _)| column.title).collect();
            let holders_width = columns.last().map_or(0, |(_, width)| *width);
            (titles.join(" "), holders_width, name_width)
        };
        let all = "WAITING HELD FOR WAITED LEASE KIND HELD BY";
        assert_eq!(shown(114), (all.to_owned(), 30, 41));
        assert_eq!(shown(80), (all.to_owned(), 18, 19));
        assert_eq!(shown(60), ("WAITING HELD FOR WAITED HELD BY".to_owned(), 17, 18));
        assert_eq!(shown(50), ("WAITING HELD FOR HELD BY".to_owned(), 16, 16));
        assert_eq!(shown(40), ("HELD BY".to_owned(), 19, 20));
        assert_eq!(shown(10), (String::new(), 0, 16));
    }
}
