//! `dlock run`: runs a command under a lock.

mod acquire;
mod deadline;
mod job;
mod lock;
mod parent_death;
mod progress;
mod release;
mod signals;
mod stderr_writer;
mod supervisor;
mod terminal;

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use redis_dlock_client::{self as client, EventKind};
use redis_dlock_quorum as quorum;

use self::acquire::{Acquired, acquire};
use self::deadline::Deadline;
use self::job::Job;
use self::lock::Locks;
pub use self::parent_death::exec_if_helper;
use self::signals::Signals;
use self::stderr_writer::{StderrSender, StderrWriter};
use self::supervisor::{Supervisor, exit_code_of};
use crate::args::{RunArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::server::Target;
use crate::text::display_name;

pub fn run(args: &RunArgs, server: &ServerArgs) -> Result<ExitCode, Failure> {
    let deadline = Deadline::new(args);
    let stderr = StderrWriter::start().map_err(|error| os_failure("start a thread", &error))?;
    let locks = if args.quorum.is_empty() {
        let server_of_locks = deadline.connect(Target::new(server)?)?;
        let settings = client::Settings::default().on_event(report_renewals(args, stderr.sender().clone()));
        Locks::One(client::Locks::with(server_of_locks, settings)?)
    } else {
        let servers = Target::quorum(server, &args.quorum)?;
        let addresses = servers.iter().map(Target::quorum_server);
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let report = report_renewals_of_quorum(args, stderr.sender().clone());
        let settings = quorum::Settings::default().on_event(report);
        Locks::Quorum(quorum::Locks::with(addresses, settings)?)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| os_failure("start the runtime", &error))?;
    let exit = runtime.block_on(run_under_lock(args, &locks, deadline, stderr.sender()));
    runtime.shutdown_background();
    stderr.flush();
    exit
}

async fn run_under_lock(
    args: &RunArgs,
    locks: &Locks,
    deadline: Deadline,
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| os_failure("install signal handlers", &error))?;
    let guard = match acquire(args, locks, deadline, &mut signals, stderr).await? {
        Acquired::Guard(guard) => guard,
        Acquired::Interrupted(signal) => return Ok(exit_code_of(signal)),
        Acquired::Busy(code) => return Ok(ExitCode::from(code)),
    };
    let job = match Job::start(&args.command, &guard) {
        Ok(job) => job,
        Err(failure) => {
            // Report this failure rather than one of the release.
            let _ = guard.release(false).await;
            return Err(failure);
        }
    };
    let mut supervisor = Supervisor::new(args, &guard, job, stderr);
    let exit = supervisor.wait_for_exit(&mut signals).await;
    let loss = supervisor.loss();
    release::release(args, guard, loss, exit, stderr).await
}

/// Reports that renewals fail, and once more when they succeed again.
fn report_renewals(args: &RunArgs, stderr: StderrSender) -> impl Fn(&client::Event) + Send + Sync + 'static {
    let name = display_name(args.name.as_bytes());
    let is_failing = AtomicBool::new(false);
    move |event| match &event.kind {
        EventKind::RenewFailed { error } if !is_failing.swap(true, Ordering::Relaxed) => {
            stderr.print(format!("cannot renew the lease of {name}, retrying: {error}"));
        }
        EventKind::RenewedAgain => {
            is_failing.store(false, Ordering::Relaxed);
            stderr.print(format!("renewed the lease of {name}"));
        }
        // The supervisor reports lost locks.
        _ => {}
    }
}

/// The same for each server of a quorum.
fn report_renewals_of_quorum(
    args: &RunArgs,
    stderr: StderrSender,
) -> impl Fn(&quorum::Event) + Send + Sync + 'static {
    use quorum::EventKind;
    let name = display_name(args.name.as_bytes());
    let failing = Mutex::new(HashSet::new());
    move |event| {
        let mut failing = failing.lock().unwrap_or_else(PoisonError::into_inner);
        match &event.kind {
            EventKind::RenewFailed { server, error } if failing.insert(server.to_string()) => {
                stderr.print(format!(
                    "cannot renew the lease of {name} on {server}, retrying: {error}"
                ));
            }
            EventKind::RenewedAgain { server } if failing.remove(&**server) => {
                stderr.print(format!("renewed the lease of {name} on {server}"));
            }
            _ => {}
        }
    }
}

fn os_failure(action: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::OsError, format!("cannot {action}: {error}"))
}
