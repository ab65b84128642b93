//! `dlock break`

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use redis::{Value, cmd, pipe};

use crate::args::BreakArgs;
use crate::exit::{Code, Failure};
use crate::lock::Named;
use crate::server::{Node, Target};
use crate::show;
use crate::text::{Paint, shown};

/// A holder that renews its lease changes the lock, again and again.
const ATTEMPTS: usize = 100;

pub fn break_lock(args: &BreakArgs, target: &Target) -> Result<ExitCode, Failure> {
    let mut node = target.node_of(args.name.as_bytes())?;
    let lock = Named::read(&mut node, args.name.as_bytes())?;
    show::write(&lock, &mut io::stdout().lock(), Paint::for_output())?;
    if lock.holders().is_empty() {
        return Ok(Code::Nothing.into());
    }
    if !args.yes && !is_confirmed()? {
        writeln!(io::stdout(), "Nothing was broken")?;
        return Ok(Code::Nothing.into());
    }
    delete(&mut node, &lock)?;
    let next = if lock.waiting() == 0 {
        ""
    } else {
        ", the next in the queue gets it"
    };
    writeln!(
        io::stdout(),
        "Broken{next}. The former holders are not stopped: see that they end, or that fences are checked"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here: add --yes"));
    }
    let mut out = io::stdout().lock();
    write!(
        out,
        "\nTake the lock away from all its holders, while they may still work? [y/N] "
    )?;
    out.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(Code::System, format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Deletes a lock that has the same holders as before.
fn delete(node: &mut Node, shown_before: &Named) -> Result<(), Failure> {
    let name = &shown_before.name;
    for _ in 0..ATTEMPTS {
        node.query::<()>(cmd("WATCH").arg(name))?;
        let now = Named::read(node, name)?;
        if fences(&now) != fences(shown_before) {
            let message = format!(
                "{}: other holders have it by now, nothing was broken",
                shown(name)
            );
            return Err(Failure::new(Code::Nothing, message));
        }
        let deletion: Value = pipe().atomic().del(name).query(&mut node.connection)?;
        if deletion != Value::Nil {
            return Ok(());
        }
    }
    let message = format!(
        "{}: it changes all the time, nothing was broken: try again",
        shown(name)
    );
    Err(Failure::new(Code::Nothing, message))
}

/// Each grant has another one.
fn fences(lock: &Named) -> Vec<u64> {
    lock.holders().iter().map(|holder| holder.fence).collect()
}
