//! `dlock break`

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use redis::{Value, cmd};
use redis_dlock_client::HolderInfo;

use crate::args::BreakArgs;
use crate::exit::{Code, Failure};
use crate::lock::NamedLock;
use crate::output::stdout;
use crate::server::{Node, Target};
use crate::show;

pub fn break_lock(args: &BreakArgs, target: &Target) -> Result<ExitCode, Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "cannot ask for confirmation without a terminal: add --yes",
        ));
    }
    let name = args.name.bytes()?;
    let mut node = target.node_of(&name)?;
    let lock = NamedLock::read(&mut node, &name)?;
    let mut out = stdout();
    show::write(&lock, &mut out)?;
    out.flush()?;
    drop(out);
    if lock.holders().is_empty() {
        return Ok(Code::NoEffect.into());
    }
    let is_named = |holder: &&HolderInfo| {
        let owner = args.owner.as_ref().map(|owner| owner.as_bytes());
        owner.is_none_or(|owner| holder.owner.as_bytes() == owner)
    };
    let named: Vec<&HolderInfo> = lock.holders().iter().filter(is_named).collect();
    if named.is_empty() {
        let message = "not broken: this owner does not hold it";
        return Err(Failure::new(Code::NoEffect, message).about(&lock.name));
    }
    if !args.yes && !is_confirmed()? {
        writeln!(io::stdout(), "Not broken")?;
        return Ok(Code::NoEffect.into());
    }
    let mut is_broken = false;
    for holder in named {
        is_broken |= release(&mut node, &lock, holder)?;
    }
    if !is_broken {
        let message = "not broken: its holders have changed in the meantime";
        return Err(Failure::new(Code::NoEffect, message).about(&lock.name));
    }
    let next = match lock.waiting() {
        0 => "",
        _ => ", and granted to the next waiter",
    };
    writeln!(
        io::stdout(),
        "Broken{next}. The previous holders are still running: stop them, or make sure that fencing tokens are checked"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn is_confirmed() -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    write!(
        out,
        "\nRelease this lock although its holders may still be using it? [y/N] "
    )?;
    out.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(Code::OsError, format!("cannot read the reply: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Releases all holds under the fence that was shown. `false` if they have ended.
pub fn release(node: &mut Node, lock: &NamedLock, holder: &HolderInfo) -> Result<bool, Failure> {
    let mut command = cmd("DLOCK.RELEASE");
    command.arg(&lock.name).arg(holder.owner.as_bytes());
    command.arg("FENCE").arg(holder.fence).arg("ALL");
    match node.query::<Value>(&command) {
        Ok(_) => Ok(true),
        Err(failure) if failure.code == Code::LockLost => Ok(false),
        Err(failure) => Err(failure.about(&lock.name)),
    }
}
