//! Acquires the lock, or cancels the request when a signal arrives.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_dlock_client::{Error, Guard, Lock, Locks, Owner};
use tokio::time::{sleep, timeout};

use super::signals::Signals;
use crate::args::RunArgs;
use crate::exit::{Code, Failure};

/// How long to wait until the server has dropped a cancelled request.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(10);

pub enum Acquired {
    Guard(Guard),
    Interrupted(Signal),
}

pub async fn acquire(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Result<Acquired, Failure> {
    let owner = Owner::unique();
    let lock = lock_with_options(args, locks, &owner);
    tokio::select! {
        guard = lock.acquire() => match guard {
            Ok(guard) => Ok(Acquired::Guard(guard)),
            Err(error) => {
                if !matches!(error, Error::Busy) {
                    wait_until_cancelled(&lock, &owner).await;
                }
                Err(acquire_failure(args, error))
            }
        },
        signal = signals.next_forwarded() => {
            wait_until_cancelled(&lock, &owner).await;
            Ok(Acquired::Interrupted(signal))
        }
    }
}

fn lock_with_options(args: &RunArgs, locks: &Locks, owner: &Owner) -> Lock {
    let wait = if args.no_wait {
        Duration::ZERO
    } else {
        args.wait.unwrap_or(Duration::MAX)
    };
    let mut lock = locks
        .lock(args.name.as_bytes())
        .lease(args.lease)
        .owner(owner)
        .wait(wait);
    if args.shared {
        lock = lock.shared();
    }
    if let Some(limit) = args.limit {
        lock = lock.limit(limit);
    }
    if let Some(time) = args.max_hold {
        lock = lock.max_hold(time);
    }
    lock
}

/// Waits until the server no longer knows the request. A grant that is still in flight would block others until its
/// lease expires.
async fn wait_until_cancelled(lock: &Lock, owner: &Owner) {
    let cancelled = async {
        while let Ok(Some(info)) = lock.info().await {
            let holds = info.holders.iter().any(|holder| holder.owner == *owner);
            let waits = info.waiters.iter().any(|waiter| waiter.owner == *owner);
            if !holds && !waits {
                break;
            }
            sleep(CANCEL_POLL_INTERVAL).await;
        }
    };
    // After a timeout, the request ends with the connection, or the grant with its lease.
    let _ = timeout(CANCEL_TIMEOUT, cancelled).await;
}

fn acquire_failure(args: &RunArgs, error: Error) -> Failure {
    let name = args.name.as_bytes();
    if let Error::Lost(_) = error {
        let message = "granted, but the lease had expired when the reply arrived: use a longer --lease";
        return Failure::new(Code::NotAcquired, message).about(name);
    }
    let mut failure = Failure::from(error);
    // The server calls the option lease-ms.
    if failure.message.contains("lease-ms") {
        failure.message += ": set another one with --lease";
    }
    failure.about(name)
}
