//! Acquires the lock, or cancels the request when a signal arrives.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_dlock_client::{Error, Owner};

use super::lock::{Guard, Lock, Locks};
use super::progress;
use super::signals::Signals;
use super::stderr_writer::StderrSender;
use crate::args::RunArgs;
use crate::exit::{Code, Failure};
use crate::output::eprint_error;

/// The lease unless the server accepts shorter ones only.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub enum Acquired {
    Guard(Guard),
    Interrupted(Signal),
    /// Others hold the lock, and `--busy-code` has another exit code for that.
    Busy(u8),
}

pub async fn acquire(
    args: &RunArgs,
    locks: &Locks,
    signals: &mut Signals,
    stderr: &StderrSender,
) -> Result<Acquired, Failure> {
    let owner = Owner::unique();
    let mut lease = args.lease.unwrap_or(DEFAULT_LEASE);
    loop {
        let lock = locks.lock(args, &owner, lease);
        let error = tokio::select! {
            guard = lock.acquire() => match guard {
                Ok(guard) => return Ok(Acquired::Guard(guard)),
                Err(error) => error,
            },
            signal = signals.next_forwarded() => {
                lock.wait_until_cancelled().await;
                return Ok(Acquired::Interrupted(signal));
            }
            never = progress::report(args, &lock, stderr) => match never {},
        };
        if let (None, Some(longest)) = (
            args.lease,
            longest_lease(&error).filter(|&longest| longest < lease),
        ) {
            lease = longest;
            continue;
        }
        if !matches!(error, Error::Busy) {
            lock.wait_until_cancelled().await;
        }
        return not_acquired(args, &lock, error).await;
    }
}

/// The longest lease that the server accepts, from its error `lease-ms must be a plain decimal from 1 to 15000`.
fn longest_lease(error: &Error) -> Option<Duration> {
    let text = error.to_string();
    let (_, range) = text.split_once("lease-ms must be a plain decimal from ")?;
    let (_, longest) = range.split_once(" to ")?;
    let digits = longest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().map(Duration::from_millis)
}

async fn not_acquired(args: &RunArgs, lock: &Lock<'_>, error: Error) -> Result<Acquired, Failure> {
    let name = args.name.as_bytes();
    let mut failure = match &error {
        Error::Lost(_) => {
            let message = "granted, but the lease had expired when the reply arrived: use a longer --lease";
            Failure::new(Code::NotAcquired, message)
        }
        Error::Busy if !args.quiet => Failure::new(
            Code::NotAcquired,
            format!(
                "busy{}: try again later, or wait for it (without --try)",
                progress::describe(lock).await
            ),
        ),
        _ => Failure::from(error),
    };
    // The server calls the option lease-ms.
    if failure.message.contains("lease-ms") {
        failure.message += ": set another one with --lease";
    }
    let mut failure = failure.about(name);
    if failure.code == Code::NotAcquired {
        if args.quiet {
            failure.message.clear();
        }
        if let Some(code) = args.busy_code {
            if !failure.message.is_empty() {
                eprint_error(&failure.message);
            }
            return Ok(Acquired::Busy(code));
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_lease_is_read_from_the_error_of_the_server() {
        let error = |text: &str| Error::Invalid(text.to_owned());
        let rejected = error("lease-ms must be a plain decimal from 1 to 15000");
        assert_eq!(longest_lease(&rejected), Some(Duration::from_secs(15)));
        assert_eq!(longest_lease(&error("owner must not be empty")), None);
    }
}
