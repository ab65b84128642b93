//! `dlock ls`

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use redis_dlock_client::HolderInfo;
use serde_json::Value;

use crate::args::LsArgs;
use crate::duration;
use crate::exit::{Failure, report_unreachable};
use crate::lock::NamedLock;
use crate::output::{eprint_error, stdout};
use crate::scan::{self, ScanResult};
use crate::server::{Node, Target};
use crate::table::Table;
use crate::text::{display_name, truncate_middle};

const MAX_NAME_WIDTH: usize = 60;

pub fn ls(args: &LsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    let (mut nodes, unreachable) = target.reachable_primaries()?;
    let ScanResult { mut locks, denied } = scan::all_locks(&mut nodes, pattern)?;
    locks.retain(|lock| is_selected(lock, args));
    let is_filtered = pattern.is_some() || args.owner.is_some() || args.held_over.is_some();
    let mut out = stdout();
    if args.json {
        let locks: Value = locks.iter().map(NamedLock::json).collect();
        writeln!(out, "{locks:#}")?;
    } else {
        // On a terminal, one long name must not make every row too wide. Other programs get complete names.
        let is_terminal = io::stdout().is_terminal();
        let name_width = if is_terminal { MAX_NAME_WIDTH } else { usize::MAX };
        table(&locks, name_width).write(&mut out)?;
        out.flush()?;
        if !is_filtered {
            warn_about_unlisted_queues(&mut nodes, &locks);
        }
    }
    out.flush()?;
    if !denied.is_empty() {
        eprint_error(&format!(
            "{} more locks that this user has no permission to read: grant access to their keys \
             (ACL SETUSER name ~pattern), or list only those it can read: dlock ls 'lock:*'",
            denied.len()
        ));
    }
    Ok(report_unreachable(&unreachable))
}

/// A lock that has waiters but no holder has no key, so SCAN cannot find it: servers only report how many there are.
fn warn_about_unlisted_queues(nodes: &mut [Node], locks: &[NamedLock]) {
    let listed = locks.iter().filter(|lock| lock.waiting() > 0).count() as u64;
    // Skipped without permission for INFO.
    let contended = nodes
        .iter_mut()
        .filter_map(|node| node.info(&["dlock"]).ok()?.number("dlock_contended_locks"));
    let unlisted = contended.sum::<u64>().saturating_sub(listed);
    if unlisted > 0 {
        eprint_error(&format!(
            "{unlisted} more locks have waiters but no holder (grace period, too few replicas), or are in another \
             database: dlock show NAME shows one"
        ));
    }
}

fn is_selected(lock: &NamedLock, args: &LsArgs) -> bool {
    let holders = lock.holders();
    let has_owner = |prefix: &OsStr| {
        let holders = holders.iter().map(|holder| &holder.owner);
        let mut owners = holders.chain(lock.waiters().iter().map(|waiter| &waiter.owner));
        owners.any(|owner| owner.as_bytes().starts_with(prefix.as_bytes()))
    };
    args.owner.as_deref().is_none_or(has_owner)
        && args
            .held_over
            .is_none_or(|time| holders.iter().any(|holder| holder.held > time))
}

fn table(locks: &[NamedLock], name_width: usize) -> Table {
    let mut table = Table::new(&[
        "LOCK",
        "KIND",
        "HELD BY",
        ">FENCE",
        ">HELD FOR",
        ">LEASE",
        ">WAITING",
    ]);
    for lock in locks {
        let name = truncate_middle(&display_name(&lock.name), name_width).into_owned();
        let first = lock.holders().first();
        let of_first = |text: fn(&HolderInfo) -> String| first.map(text).unwrap_or_default();
        table.row(vec![
            name,
            lock.kind(),
            lock.held_by(display_name, name_width),
            of_first(|first| first.fence.to_string()),
            of_first(|first| duration::format(first.held)),
            of_first(|first| duration::format(first.lease)),
            lock.waiting().to_string(),
        ]);
    }
    table
}
