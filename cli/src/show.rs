//! `dlock show`

use std::io::{self, Write};
use std::process::ExitCode;

use redis_dlock_client::{HolderInfo, WaiterInfo};

use crate::args::ShowArgs;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::lock::{NamedLock, kind};
use crate::output::stdout;
use crate::server::Target;
use crate::table::Table;
use crate::text::display_name;

pub fn show(args: &ShowArgs, target: &Target) -> Result<ExitCode, Failure> {
    let name = args.name.bytes()?;
    let lock = NamedLock::read(&mut target.node_of(&name)?, &name)?;
    let mut out = stdout();
    if args.json {
        writeln!(out, "{:#}", lock.json())?;
    } else {
        write(&lock, &mut out)?;
    }
    out.flush()?;
    match lock.info {
        Some(_) => Ok(ExitCode::SUCCESS),
        None => Ok(Code::NoEffect.into()),
    }
}

/// A lock in text form.
pub fn write(lock: &NamedLock, out: &mut dyn Write) -> io::Result<()> {
    let name = display_name(&lock.name);
    if lock.info.is_none() {
        return writeln!(out, "{name}: not held, no waiters");
    }
    if lock.holders().is_empty() {
        writeln!(out, "{name}: not held")?;
    } else {
        writeln!(out, "{name}: {}, held by {}", lock.kind(), lock.holders().len())?;
        holders(lock.holders()).write(out)?;
    }
    if lock.waiting() == 0 {
        return writeln!(out, "\nNo waiters");
    }
    writeln!(out, "\nWaiters: {}", lock.waiting())?;
    waiters(lock.waiters()).write(out)?;
    match lock.waiting().saturating_sub(lock.waiters().len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "... and {more} more"),
    }
}

fn holders(holders: &[HolderInfo]) -> Table {
    let mut table = Table::new(&["HELD BY", ">FENCE", ">HOLDS", ">HELD FOR", ">LEASE"]);
    for holder in holders {
        table.row(vec![
            display_name(holder.owner.as_bytes()),
            holder.fence.to_string(),
            holder.holds.to_string(),
            duration::format(holder.held),
            duration::format(holder.lease),
        ]);
    }
    table
}

/// Waiters of inboxes are marked, in a column that is there if there are any.
fn waiters(waiters: &[WaiterInfo]) -> Table {
    let mut header = vec![">#", "WAITER", "KIND", ">WAITED", ">TIMEOUT"];
    let has_queued = waiters.iter().any(|waiter| waiter.is_queued);
    if has_queued {
        header.push("BY");
    }
    let mut table = Table::new(&header);
    for (n, waiter) in waiters.iter().enumerate() {
        let mut cells = vec![
            (n + 1).to_string(),
            display_name(waiter.owner.as_bytes()),
            kind(waiter.limit),
            duration::format(waiter.waited),
            waiter.timeout.map_or_else(|| "none".to_owned(), duration::format),
        ];
        if has_queued {
            cells.push(if waiter.is_queued { "inbox" } else { "connection" }.to_owned());
        }
        table.row(cells);
    }
    table
}
