//! `dlock run`: runs a command under a lock.

mod acquire;
mod deadline;
mod lock;
mod progress;
mod release;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use redis_dlock_client::{self as client, EventKind, Owner};
use redis_dlock_quorum as quorum;

use self::acquire::{Acquired, acquire};
use self::deadline::Deadline;
use self::lock::{Deployment, Locks, Request};
use crate::args::{RunArgs, ServerArgs};
use crate::exit::Failure;
use crate::jobctl::{Job, Rules, Signals, StderrSender, StderrWriter, Supervisor, exit_code_of};
use crate::server::Target;
use crate::text::display_name;

pub fn run(args: &RunArgs, server: &ServerArgs) -> Result<ExitCode, Failure> {
    let deadline = Deadline::new(args);
    let stderr = StderrWriter::start().map_err(|error| Failure::os("start a thread", &error))?;
    let mut request = Request {
        args,
        lease: acquire::lease(args, None)?,
        deadline,
        owner: Owner::unique(),
    };
    let report = renewal_reporter(args, stderr.sender());
    let exit = if args.quorum.is_empty() {
        let found = deadline.connect(Target::new(server)?)?;
        request.lease =
            acquire::lease(args, found.max_lease).map_err(|failure| failure.about(request.name()))?;
        let settings = client::Settings::default().on_event(move |event| match &event.kind {
            EventKind::RenewFailed { error } => report(String::new(), Some(error.to_string())),
            EventKind::RenewedAgain => report(String::new(), None),
            // The supervisor reports lost locks.
            _ => {}
        });
        let deployment = Deployment {
            locks: client::Locks::with(found.server, settings)?,
            is_cluster: found.is_cluster,
        };
        block_on_run(&deployment, &request, stderr.sender())
    } else {
        let servers = Target::quorum(server, &args.quorum)?;
        let addresses = servers.iter().map(Target::quorum_server);
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let settings = quorum::Settings::default().on_event(move |event| match &event.kind {
            quorum::EventKind::RenewFailed { server, error } => {
                report(format!(" on {server}"), Some(error.to_string()))
            }
            quorum::EventKind::RenewedAgain { server } => report(format!(" on {server}"), None),
            _ => {}
        });
        block_on_run(
            &quorum::Locks::with(addresses, settings)?,
            &request,
            stderr.sender(),
        )
    };
    stderr.flush();
    exit
}

fn block_on_run(
    locks: &impl Locks,
    request: &Request<'_>,
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::os("start the runtime", &error))?;
    let exit = runtime.block_on(run_under_lock(locks, request, stderr));
    runtime.shutdown_background();
    exit
}

async fn run_under_lock<L: Locks>(
    locks: &L,
    request: &Request<'_>,
    stderr: &StderrSender,
) -> Result<ExitCode, Failure> {
    let args = request.args;
    let mut signals = Signals::listen().map_err(|error| Failure::os("install signal handlers", &error))?;
    let guard = match acquire(locks, request, &mut signals, stderr).await? {
        Acquired::Guard(guard) => guard,
        Acquired::Interrupted(signal) => return Ok(exit_code_of(signal)),
        Acquired::Busy(code) => return Ok(ExitCode::from(code)),
    };
    let job = match start::<L>(args, &guard) {
        Ok(job) => job,
        Err(failure) => {
            // Report this failure rather than one of the release.
            let _ = locks.release(guard, false).await;
            return Err(failure);
        }
    };
    let rules = Rules {
        what: format!("the lock {}", display_name(request.name())),
        on_lost: args.on_lost,
        kill_after: args.kill_after,
    };
    let exit = Supervisor::new(rules, &guard, job, stderr)
        .wait_for_exit(&mut signals)
        .await;
    release::release(locks, request, guard, exit, stderr).await
}

/// Starts the command, with the owner and the fencing token in its environment.
fn start<L: Locks>(args: &RunArgs, guard: &L::Guard) -> Result<Job, Failure> {
    let (owner, fence) = L::owner_and_fence(guard);
    let fence = fence.map(|fence| fence.to_string());
    let env = [
        ("DLOCK_OWNER", Some(OsStr::from_bytes(owner))),
        ("DLOCK_FENCE", fence.as_deref().map(OsStr::new)),
    ];
    Job::start(&args.command, &env)
}

/// Reports that renewals fail, and once more when they succeed again. Each server of a quorum counts on its own: `on`
/// names it.
fn renewal_reporter(args: &RunArgs, stderr: &StderrSender) -> impl Fn(String, Option<String>) + use<> {
    let (name, stderr) = (display_name(args.name.as_bytes()), stderr.clone());
    let failing = Mutex::new(HashSet::new());
    move |on, error| {
        let mut failing = failing.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) if failing.insert(on.clone()) => {
                stderr.print(format!("cannot renew the lease of {name}{on}, retrying: {error}"));
            }
            None if failing.remove(&on) => stderr.print(format!("renewed the lease of {name}{on}")),
            _ => {}
        }
    }
}
