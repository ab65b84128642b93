//! Releases the lock after the command has exited.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use redis_dlock_client::{Error, LostReason};

use super::lock::Guard;
use super::stderr_writer::StderrSender;
use crate::args::{OnLost, RunArgs};
use crate::exit::{Code, Failure};
use crate::text::display_name;

/// Releases the lock and returns the exit code. `reported` is the loss of the lock that was already reported.
pub async fn release(
    args: &RunArgs,
    guard: Guard,
    reported: Option<LostReason>,
    exit: ExitCode,
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let name = display_name(args.name.as_bytes());
    let noticed = match reported {
        Some(loss) => Some(loss),
        None => verify_held(&guard).await,
    };
    let released = guard.release(exit == ExitCode::SUCCESS).await;
    let loss = match (noticed, released) {
        (Some(loss), _) | (None, Err(Error::Lost(loss))) => Some(loss),
        (None, Ok(())) => None,
        (None, Err(error)) => {
            stderr.print(format!(
                "cannot release {name}: {error}: it may stay held until its lease expires"
            ));
            None
        }
    };
    let Some(loss) = loss else {
        return Ok(exit);
    };
    if reported.is_none() {
        stderr.print(format!("lost the lock {name} before the command exited: {loss}"));
    }
    Ok(match args.on_lost {
        OnLost::Ignore => exit,
        OnLost::Kill | OnLost::Term => Code::LockLost.into(),
    })
}

/// Checks that the lock was held to the end. In a cluster, a release does not report this for certain.
async fn verify_held(guard: &Guard) -> Option<LostReason> {
    match guard.extend(Duration::from_millis(1)).await {
        Err(Error::Lost(loss)) => Some(loss),
        _ => None,
    }
}
