//! Releases the lock after the command has exited.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use super::lock::{Guard, ReleaseError};
use super::stderr_writer::StderrSender;
use crate::args::{OnLost, RunArgs};
use crate::exit::{Code, Failure};
use crate::text::display_name;

/// Releases the lock and returns the exit code. `reported` is the loss of the lock that was already reported.
pub async fn release(
    args: &RunArgs,
    guard: Guard<'_>,
    reported: Option<String>,
    exit: ExitCode,
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let name = display_name(args.name.as_bytes());
    let noticed = match &reported {
        Some(loss) => Some(loss.clone()),
        // In a cluster, a release does not report for certain that the lock was held to the end.
        None => guard.find_loss().await,
    };
    let keeps = args.at_least.is_none() || exit == ExitCode::SUCCESS;
    let released = guard.release(keeps).await;
    let loss = match (noticed, released) {
        (Some(loss), _) | (None, Err(ReleaseError::Lost(loss))) => Some(loss),
        (None, Ok(())) => None,
        (None, Err(ReleaseError::Failed(error))) => {
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
