//! Acquires the lock, or cancels the request when a signal arrives.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::lock::{Locks, Request};
use super::progress;
use crate::args::RunArgs;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::jobctl::{Signals, StderrSender};
use crate::output::eprint_error;

/// The lease unless the server accepts shorter ones only.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub enum Acquired<G> {
    Guard(G),
    Interrupted(Signal),
    /// Others hold the lock, and `--busy-code` has another exit code for that.
    Busy(u8),
}

/// The lease of `--lease`, or the default one. `longest` is the longest that the server accepts, if it is known: for
/// `--at-least`, too, because the release makes a lease of the rest of that time.
pub fn lease(args: &RunArgs, longest: Option<Duration>) -> Result<Duration, Failure> {
    let longest = longest.unwrap_or(Duration::MAX);
    for (option, time) in [("--lease", args.lease), ("--at-least", args.at_least)] {
        if time.is_some_and(|time| time > longest) {
            let longest = duration::format(longest);
            let message =
                format!("{option}: the server accepts leases of up to {longest} (dlock.max-lease-ms)");
            return Err(Failure::usage(message));
        }
    }
    Ok(args.lease.unwrap_or(DEFAULT_LEASE.min(longest)))
}

pub async fn acquire<L: Locks>(
    locks: &L,
    request: &Request<'_>,
    signals: &mut Signals,
    stderr: &StderrSender,
) -> Result<Acquired<L::Guard>, Failure> {
    let deadline = request.deadline;
    let failure = tokio::select! {
        acquired = deadline.within(locks.acquire(request)) => match acquired {
            Some(Ok(Some(guard))) if !deadline.is_over() => return Ok(Acquired::Guard(guard)),
            Some(Ok(None)) => return not_acquired(request.args, busy(locks, request).await),
            Some(Err(failure)) => failure,
            _ => deadline.failure(Code::NotAcquired, "not granted", "try again later, or see dlock doctor"),
        },
        signal = signals.next_forwarded() => {
            deadline.cancel(locks.shutdown()).await;
            return Ok(Acquired::Interrupted(signal));
        }
        never = progress::report(locks, request, stderr) => match never {},
    };
    // A grant that is still in flight would block others until its lease expires.
    deadline.cancel(locks.shutdown()).await;
    not_acquired(request.args, failure)
}

async fn busy<L: Locks>(locks: &L, request: &Request<'_>) -> Failure {
    // Others hold the lock or are queued for it; who they are is worth a request only if it is printed.
    let holders = match request.args.quiet {
        true => None,
        false => request.deadline.within(progress::describe(locks, request)).await,
    };
    let holders = holders.unwrap_or_default();
    let message = format!("busy{holders}: try again later, or wait for it (without --try)");
    Failure::new(Code::NotAcquired, message)
}

fn not_acquired<G>(args: &RunArgs, failure: Failure) -> Result<Acquired<G>, Failure> {
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
