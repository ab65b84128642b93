//! `dlock run`: runs a command under a lock.

mod acquire;
mod job;
mod parent_death;
mod progress;
mod release;
mod signals;
mod stderr_writer;
mod supervisor;
mod terminal;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_dlock_client::{Event, EventKind, Locks, Settings};

use self::acquire::{Acquired, acquire};
use self::job::Job;
pub use self::parent_death::exec_if_helper;
use self::signals::Signals;
use self::stderr_writer::{StderrSender, StderrWriter};
use self::supervisor::{Supervisor, exit_code_of};
use crate::args::RunArgs;
use crate::exit::{Code, Failure};
use crate::server::Target;
use crate::text::display_name;

pub fn run(args: &RunArgs, target: &Target) -> Result<ExitCode, Failure> {
    let stderr = StderrWriter::start().map_err(|error| os_failure("start a thread", &error))?;
    let settings = Settings::default().on_event(report_renewals(stderr.sender().clone()));
    let locks = Locks::with(target.client_address()?, settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| os_failure("start the runtime", &error))?;
    let exit = runtime.block_on(run_under_lock(args, &locks, stderr.sender()));
    runtime.shutdown_background();
    stderr.flush();
    exit
}

async fn run_under_lock(args: &RunArgs, locks: &Locks, stderr: &StderrSender) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| os_failure("install signal handlers", &error))?;
    let guard = match acquire(args, locks, &mut signals, stderr).await? {
        Acquired::Guard(guard) => guard,
        Acquired::Interrupted(signal) => return Ok(exit_code_of(signal)),
        Acquired::Busy(code) => return Ok(ExitCode::from(code)),
    };
    let job = match Job::start(&args.command, &guard) {
        Ok(job) => job,
        Err(failure) => {
            // Report this failure rather than one of the release.
            let _ = guard.release().await;
            return Err(failure);
        }
    };
    let mut supervisor = Supervisor::new(args, &guard, job, stderr);
    let exit = supervisor.wait_for_exit(&mut signals).await;
    let loss = supervisor.loss();
    release::release(args, guard, loss, exit, stderr).await
}

/// Reports failed renewals once, and once more when they succeed again.
fn report_renewals(stderr: StderrSender) -> impl Fn(&Event) + Send + Sync + 'static {
    let failing = AtomicBool::new(false);
    move |event| {
        let name = display_name(&event.key);
        match &event.kind {
            // The supervisor reports lost locks.
            EventKind::RenewFailed { error, .. }
                if !error.is_lost() && !failing.swap(true, Ordering::Relaxed) =>
            {
                stderr.print(format!("cannot renew the lease of {name}, retrying: {error}"));
            }
            EventKind::Renewed { .. } if failing.swap(false, Ordering::Relaxed) => {
                stderr.print(format!("renewed the lease of {name}"));
            }
            _ => {}
        }
    }
}

fn os_failure(action: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::OsError, format!("cannot {action}: {error}"))
}
