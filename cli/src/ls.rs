//! `dlock ls`

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use serde_json::Value;

use crate::args::LsArgs;
use crate::complain;
use crate::exit::Failure;
use crate::lock::Named;
use crate::scan::{self, Found};
use crate::server::{Node, Target};
use crate::span;
use crate::table::Table;
use crate::text::{Paint, shown};

pub fn ls(args: &LsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    let mut nodes = target.primaries()?;
    let Found { locks, hidden } = scan::all(&mut nodes, pattern)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let locks: Value = locks.iter().map(Named::json).collect();
        writeln!(out, "{locks:#}")?;
    } else {
        table(&locks).write(&mut out, Paint::for_output())?;
        out.flush()?;
        if pattern.is_none() {
            tell_of_the_unlisted(&mut nodes, &locks);
        }
    }
    out.flush()?;
    if !hidden.is_empty() {
        complain(&format!(
            "{} more that this user may not look at: ask for the right to their names (ACL SETUSER name ~pattern), \
             or name those that it may see: dlock ls 'lock:*'",
            hidden.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A queue without a holder has no key that a scan could find: the servers only tell how many queues there are.
fn tell_of_the_unlisted(nodes: &mut [Node], locks: &[Named]) {
    let listed = locks.iter().filter(|lock| lock.waiting() > 0).count() as u64;
    // A user who may not use INFO is told nothing.
    let counted = nodes
        .iter_mut()
        .filter_map(|node| node.info("dlock").ok()?.number("dlock_contended_locks"));
    let unlisted = counted.sum::<u64>().saturating_sub(listed);
    if unlisted > 0 {
        complain(&format!(
            "{unlisted} more waited for: nobody holds them (a grace, too few replicas), or they are in another \
             database. dlock show NAME shows one"
        ));
    }
}

fn table(locks: &[Named]) -> Table {
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
        let mut cells = vec![shown(&lock.name), lock.kind()];
        match lock.holders() {
            [] => cells.extend(["-", "", "", ""].map(str::to_owned)),
            [first, others @ ..] => {
                let more = if others.is_empty() {
                    String::new()
                } else {
                    format!(" +{}", others.len())
                };
                cells.push(shown(first.owner.as_bytes()) + &more);
                cells.push(first.fence.to_string());
                cells.push(span::show(first.held));
                cells.push(span::show(first.lease));
            }
        }
        cells.push(lock.waiting().to_string());
        table.row(cells);
    }
    table
}
