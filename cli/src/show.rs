//! `dlock show`

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use redis_dlock_client::{HolderInfo, WaiterInfo};

use crate::args::ShowArgs;
use crate::exit::{Code, Failure};
use crate::lock::{Named, kind};
use crate::server::Target;
use crate::span;
use crate::table::Table;
use crate::text::{Paint, shown};

pub fn show(args: &ShowArgs, target: &Target) -> Result<ExitCode, Failure> {
    let name = args.name.as_bytes();
    let lock = Named::read(&mut target.node_of(name)?, name)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", lock.json())?;
    } else {
        write(&lock, &mut out, Paint::for_output())?;
    }
    match lock.info {
        Some(_) => Ok(ExitCode::SUCCESS),
        None => Ok(Code::Nothing.into()),
    }
}

/// All about a lock, for people.
pub fn write(lock: &Named, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let name = shown(&lock.name);
    if lock.info.is_none() {
        return writeln!(out, "{name}: nobody holds it, nobody waits for it");
    }
    if lock.holders().is_empty() {
        writeln!(out, "{name}: nobody holds it")?;
    } else {
        writeln!(out, "{name}: {}, held by {}", lock.kind(), lock.holders().len())?;
        holders(lock.holders()).write(out, paint)?;
    }
    if lock.waiting() == 0 {
        return writeln!(out, "\nNobody waits for it");
    }
    writeln!(out, "\nWaiting: {}", lock.waiting())?;
    waiters(lock.waiters()).write(out, paint)?;
    match lock.waiting().saturating_sub(lock.waiters().len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "... and {more} more"),
    }
}

fn holders(holders: &[HolderInfo]) -> Table {
    let mut table = Table::new(&["HELD BY", ">FENCE", ">HOLDS", ">HELD FOR", ">LEASE"]);
    for holder in holders {
        table.row(vec![
            shown(holder.owner.as_bytes()),
            holder.fence.to_string(),
            holder.holds.to_string(),
            span::show(holder.held),
            span::show(holder.lease),
        ]);
    }
    table
}

fn waiters(waiters: &[WaiterInfo]) -> Table {
    let mut table = Table::new(&[">#", "WAITS", "AS", ">FOR", ">AT MOST"]);
    for (n, waiter) in waiters.iter().enumerate() {
        table.row(vec![
            (n + 1).to_string(),
            shown(waiter.owner.as_bytes()),
            kind(waiter.limit),
            span::show(waiter.waited),
            waiter.timeout.map_or_else(|| "no limit".to_owned(), span::show),
        ]);
    }
    table
}
