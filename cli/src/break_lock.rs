//! `dlock break`

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use redis::{Value, cmd, pipe};

use crate::args::BreakArgs;
use crate::exit::{Code, Failure};
use crate::lock::NamedLock;
use crate::output::Painter;
use crate::server::{Node, Target};
use crate::show;

/// Each renewal of a lease modifies the key and aborts the transaction.
const MAX_ATTEMPTS: usize = 100;

pub fn break_lock(args: &BreakArgs, target: &Target) -> Result<ExitCode, Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "cannot ask for confirmation without a terminal: add --yes",
        ));
    }
    let name = args.name.bytes()?;
    let mut node = target.node_of(&name)?;
    let lock = NamedLock::read(&mut node, &name)?;
    show::write(&lock, &mut io::stdout().lock(), Painter::for_stdout())?;
    if lock.holders().is_empty() {
        return Ok(Code::NoEffect.into());
    }
    if let Some(owner) = &args.owner
        && !lock
            .holders()
            .iter()
            .any(|holder| holder.owner.as_bytes() == owner.as_bytes())
    {
        let message = "not broken: this owner does not hold it";
        return Err(Failure::new(Code::NoEffect, message).about(&lock.name));
    }
    if !args.yes && !is_confirmed()? {
        writeln!(io::stdout(), "Not broken")?;
        return Ok(Code::NoEffect.into());
    }
    match &args.owner {
        Some(owner) => release(&mut node, &lock, owner.as_bytes())?,
        None => delete(&mut node, &lock)?,
    }
    let next = if lock.waiting() == 0 {
        ""
    } else {
        ", and granted to the next waiter"
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

/// Breaks a lock that has been confirmed elsewhere, unless its holders have changed.
pub fn break_confirmed(target: &Target, lock: &NamedLock) -> Result<(), Failure> {
    delete(&mut target.node_of(&lock.name)?, lock)
}

/// Releases all holds of one owner.
fn release(node: &mut Node, lock: &NamedLock, owner: &[u8]) -> Result<(), Failure> {
    let command = cmd("DLOCK.RELEASE").arg(&lock.name).arg(owner).arg("ALL").take();
    node.query::<Value>(&command)
        .map(|_| ())
        .map_err(|failure| match failure.code {
            Code::LockLost => {
                let message = "not broken: this owner does not hold it any more";
                Failure::new(Code::NoEffect, message).about(&lock.name)
            }
            _ => failure.about(&lock.name),
        })
}

/// Deletes the lock unless its holders have changed since they were shown.
fn delete(node: &mut Node, expected: &NamedLock) -> Result<(), Failure> {
    let name = &expected.name;
    for _ in 0..MAX_ATTEMPTS {
        node.query::<()>(cmd("WATCH").arg(name))?;
        let now = NamedLock::read(node, name)?;
        if fences(&now) != fences(expected) {
            let message = "not broken: its holders have changed in the meantime";
            return Err(Failure::new(Code::NoEffect, message).about(name));
        }
        let deletion: Value = pipe().atomic().del(name).query(&mut node.connection)?;
        if deletion != Value::Nil {
            return Ok(());
        }
    }
    let message = "not broken: it kept changing: try again";
    Err(Failure::new(Code::NoEffect, message).about(name))
}

/// Fencing tokens identify grants.
fn fences(lock: &NamedLock) -> Vec<u64> {
    lock.holders().iter().map(|holder| holder.fence).collect()
}
