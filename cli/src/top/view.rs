//! Draws a sample on a screen of any size.

use std::io::stdout;
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use super::sampler::Sample;
use crate::duration;
use crate::lock::NamedLock;
use crate::output::{BOLD, paint};
use crate::table::Table;
use crate::text::{display_name, short_owner, truncate, truncate_middle};

/// A narrow screen cuts off the last of them.
const COLUMNS: [&str; 7] = [
    "LOCK",
    ">WAITING",
    ">HELD FOR",
    "HELD BY",
    ">WAITED",
    ">LEASE",
    "KIND",
];
/// What columns other than names and holders take, with their spaces.
const OTHERS: usize = 49;
/// For names and holders, if that is more than what is left.
const MIN_NAME_WIDTH: usize = 14;

/// From the upper left corner: clears what it does not overwrite.
pub fn screen(deployment: &str, sample: &Sample) -> String {
    let (rows, width) = tcgetwinsize(stdout()).map_or((24, 80), |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    });
    let bold = |line: &str| paint(BOLD, &truncate(line, width));
    let mut lines = vec![bold(&header(deployment, sample))];
    lines.extend(sample.error.iter().map(|error| bold(error)));
    for (n, line) in list(&sample.locks, width).lines().iter().enumerate() {
        lines.push(if n == 0 { bold(line) } else { truncate(line, width) });
    }
    // The cursor stays below them.
    lines.truncate(rows.saturating_sub(1));
    format!("\x1b[H{}\x1b[K\r\n\x1b[J", lines.join("\x1b[K\r\n"))
}

fn header(deployment: &str, sample: &Sample) -> String {
    let servers = match sample.servers {
        1 => String::new(),
        servers => format!("{servers} servers, "),
    };
    let mut text = format!(
        "dlock {deployment} ({}): {servers}{} locks, {} waiting",
        sample.role, sample.held, sample.waiters
    );
    if sample.queued > 0 {
        text += &format!(" ({} by inbox)", sample.queued);
    }
    if !sample.longest_wait.is_zero() {
        text += &format!(", the longest for {}", duration::format(sample.longest_wait));
    }
    if !sample.grace_left.is_zero() {
        text += &format!(", GRACE for {}", duration::format(sample.grace_left));
    }
    text
}

fn list(locks: &[NamedLock], width: usize) -> Table {
    let mut table = Table::new(&COLUMNS);
    let name_width = (width.saturating_sub(OTHERS) / 2).max(MIN_NAME_WIDTH);
    for lock in locks {
        let (holders, waiters) = (lock.holders().iter(), lock.waiters().iter());
        let lease = lock.holders().first().map(|holder| holder.lease);
        table.row(vec![
            truncate_middle(&display_name(&lock.name), name_width).into_owned(),
            lock.waiting().to_string(),
            time_or_dash(holders.map(|holder| holder.held).max()),
            lock.held_by(short_owner, name_width),
            time_or_dash(waiters.map(|waiter| waiter.waited).max()),
            time_or_dash(lease),
            lock.kind(),
        ]);
    }
    table
}

fn time_or_dash(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), duration::format)
}
