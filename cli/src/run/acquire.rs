//! Acquires the lock, or cancels the request when a signal arrives.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_dlock_client::Owner;

use super::deadline::Deadline;
use super::lock::{Guard, Lock, Locks, Refusal};
use super::progress;
use super::signals::Signals;
use super::stderr_writer::StderrSender;
use crate::args::RunArgs;
use crate::exit::{Code, Failure};
use crate::output::eprint_error;

/// The lease unless the server accepts shorter ones only.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub enum Acquired<'a> {
    Guard(Guard<'a>),
    Interrupted(Signal),
    /// Others hold the lock, and `--busy-code` has another exit code for that.
    Busy(u8),
}

pub async fn acquire<'a>(
    args: &RunArgs,
    locks: &'a Locks,
    deadline: Deadline,
    signals: &mut Signals,
    stderr: &StderrSender,
) -> Result<Acquired<'a>, Failure> {
    let owner = Owner::unique();
    let mut lease = args.lease.unwrap_or(DEFAULT_LEASE);
    loop {
        let lock = locks.lock(args, &owner, lease, deadline);
        let refusal = tokio::select! {
            guard = deadline.within(lock.acquire()) => match guard {
                Some(Ok(guard)) if !deadline.is_over() => return Ok(Acquired::Guard(guard)),
                Some(Err(refusal)) => refusal,
                _ => Refusal::Failed(deadline.failure(
                    Code::NotAcquired,
                    "not granted",
                    "try again later, or see dlock doctor",
                )),
            },
            signal = signals.next_forwarded() => {
                lock.wait_until_cancelled(deadline).await;
                return Ok(Acquired::Interrupted(signal));
            }
            never = progress::report(args, &lock, stderr) => match never {},
        };
        let failure = match refusal {
            Refusal::Busy => busy(args, &lock, deadline).await,
            Refusal::Failed(failure) => {
                let longest = longest_lease(&failure.message).filter(|&longest| longest < lease);
                if let (None, Some(longest)) = (args.lease, longest) {
                    lease = longest;
                    continue;
                }
                lock.wait_until_cancelled(deadline).await;
                failure
            }
        };
        return not_acquired(args, failure);
    }
}

/// The longest lease that the server accepts, from its error `lease-ms must be 1 to 15000`.
fn longest_lease(text: &str) -> Option<Duration> {
    let (_, range) = text.split_once("lease-ms must be ")?;
    let (_, longest) = range.split_once(" to ")?;
    let digits = longest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().map(Duration::from_millis)
}

async fn busy(args: &RunArgs, lock: &Lock<'_>, deadline: Deadline) -> Failure {
    // Others hold the lock or are queued for it; who they are is worth a request only if it is printed.
    let holders = match args.quiet {
        true => String::new(),
        false => deadline
            .within(progress::describe(lock))
            .await
            .unwrap_or_default(),
    };
    let message = format!("busy{holders}: try again later, or wait for it (without --try)");
    Failure::new(Code::NotAcquired, message)
}

fn not_acquired<'a>(args: &RunArgs, mut failure: Failure) -> Result<Acquired<'a>, Failure> {
    // The server calls the option lease-ms.
    if failure.message.contains("lease-ms") {
        failure.message += ": set another one with --lease";
    }
    let mut failure = failure.about(args.name.as_bytes());
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
        let rejected = "value is not an integer or out of range: lease-ms must be 1 to 15000";
        assert_eq!(longest_lease(rejected), Some(Duration::from_secs(15)));
        assert_eq!(longest_lease("owner must not be empty"), None);
    }
}
