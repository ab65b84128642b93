//! Releases the lock after the command has exited.

use std::process::ExitCode;

use super::lock::{Locks, ReleaseError, Request};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::jobctl::{OnLost, StderrSender};
use crate::text::display_name;

/// Releases the lock and returns the exit code. `reported` is the loss of the lock that was already reported.
pub async fn release<L: Locks>(
    locks: &L,
    request: &Request<'_>,
    guard: L::Guard,
    (exit, reported): (ExitCode, Option<String>),
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let args = request.args;
    let name = display_name(request.name());
    // After a failure, `--at-least` does not apply: another host may try at once.
    let keeps = args.at_least.is_none() || exit == ExitCode::SUCCESS;
    let released = locks.release(guard, keeps).await;
    match released {
        Err(ReleaseError::Lost(loss)) if reported.is_none() => {
            stderr.print(format!("lost the lock {name} before the command exited: {loss}"));
        }
        Err(ReleaseError::Failed(error)) if reported.is_none() => {
            return match args.at_least {
                Some(time) if keeps => {
                    let time = duration::format(time);
                    let message = format!(
                        "cannot keep {name} for {time}: {error}: it may be held only until its lease expires, and \
                         hosts that start later run the command again"
                    );
                    Err(Failure::new(Code::Unavailable, message))
                }
                _ => {
                    stderr.print(format!(
                        "cannot release {name}: {error}: it may stay held until its lease expires"
                    ));
                    Ok(exit)
                }
            };
        }
        Ok(()) if reported.is_none() => return Ok(exit),
        _ => {}
    }
    Ok(match args.on_lost {
        OnLost::Ignore => exit,
        OnLost::Kill | OnLost::Term => Code::LockLost.into(),
    })
}
