//! `dlock ls`

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use serde_json::Value;

use crate::args::LsArgs;
use crate::exit::Failure;
use crate::lock::Named;
use crate::scan;
use crate::server::Target;
use crate::span;
use crate::table::Table;
use crate::text::{Paint, shown};

pub fn ls(args: &LsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    let locks = scan::all(&mut target.primaries()?, pattern)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let locks: Value = locks.iter().map(Named::json).collect();
        writeln!(out, "{locks:#}")?;
    } else {
        table(&locks).write(&mut out, Paint::for_output())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
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
