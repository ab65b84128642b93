//! `dlock drill`: contenders and faults against a staging deployment, and what they show.

mod advice;
mod done;
mod fault;
mod report;
mod route;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use dlock_drill::clients::{Contenders, Plan};
use dlock_drill::export;
use dlock_drill::history::{Recorder, now};
use nix::sys::signal::{SigSet, SigmaskHow};
use tokio::time::{Instant, sleep, sleep_until};

use self::done::Drill;
use self::fault::Fault;
use self::report::Report;
use self::route::TargetRoute;
use crate::args::{DrillArgs, ServerArgs};
use crate::break_lock;
use crate::doctor::{self, Facts};
use crate::duration;
use crate::exit::Failure;
use crate::jobctl::{Signals, exit_code_of};
use crate::lock::NamedLock;
use crate::output::eprint_error;
use crate::server::Target;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub fn drill(args: &DrillArgs, server: &ServerArgs) -> Result<ExitCode, Failure> {
    if !args.yes_this_is_staging {
        return Err(refusal(args));
    }
    let target = Target::new(server)?;
    target.first()?.require_module()?;
    let deployment = doctor::deployment(&target)?;
    check_lease(args.lease, &deployment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::os("start the runtime", &error))?;
    let drill = runtime.block_on(run(args, &target, deployment))?;
    if let Some(path) = &args.history {
        let written = fs::write(path, export::json(&drill.history));
        written.map_err(|error| Failure::os(&format!("write {}", path.display()), &error))?;
    }
    let phases = drill.phases();
    let report = Report::of(&drill, &phases);
    report.print(args.json)?;
    Ok(match drill.interrupted {
        Some(signal) => exit_code_of(signal),
        None => report.exit_code(),
    })
}

fn refusal(args: &DrillArgs) -> Failure {
    let faults = match args.faults.len() {
        0 => String::new(),
        1 => ", and runs the command of --fault".to_owned(),
        n => format!(", and runs the {n} commands of --fault"),
    };
    let duration = duration::format(args.duration);
    Failure::usage(format!(
        "drill acquires locks of its own for {duration}, up to {} a second{faults}: add --yes-this-is-staging if this \
         deployment may fail",
        args.rate
    ))
}

fn check_lease(lease: Duration, deployment: &[Facts]) -> Result<(), Failure> {
    let limits = deployment
        .iter()
        .filter_map(|facts| facts.info.number("dlock_max_lease_ms"));
    match limits.min().map(Duration::from_millis) {
        Some(longest) if lease > longest => {
            let longest = duration::format(longest);
            let message =
                format!("--lease: the server accepts leases of up to {longest} (dlock.max-lease-ms)");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}

async fn run(args: &DrillArgs, target: &Target, deployment: Vec<Facts>) -> Result<Drill, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::os("install signal handlers", &error))?;
    let lease_ms = u64::try_from(args.lease.as_millis()).unwrap_or(u64::MAX);
    let plan = Plan::new(lease_ms, args.rate);
    let recorder = Recorder::default();
    let is_cluster = deployment.iter().any(Facts::is_cluster);
    let route = TargetRoute::new(target.clone(), is_cluster);
    let start = now();
    let contenders = without_signals(|| plan.start(&route, &recorder))?;
    let mut faults = Vec::new();
    let mut interrupted = None;
    let injected = tokio::select! {
        injected = inject(args, &mut faults) => injected,
        signal = signals.next_forwarded() => {
            interrupted = Some(signal);
            Ok(())
        }
    };
    let end = now();
    contenders.stop();
    tokio::select! {
        () = ended(&contenders, plan.longest_end()) => {}
        // A second signal does not wait for them.
        signal = signals.next_forwarded() => interrupted = Some(signal),
    }
    if let Err(failure) = plan.locks().try_for_each(|lock| remove(target, lock)) {
        let lease = duration::format(args.lease);
        eprint_error(&format!(
            "the locks of the drill expire within {lease}: they cannot be removed: {}",
            failure.message
        ));
    }
    injected?;
    Ok(Drill {
        plan,
        deployment,
        faults,
        start,
        end,
        history: recorder.history(),
        terms: route.terms(),
        interrupted,
    })
}

/// Signals would interrupt the reads of threads, which the given function starts.
fn without_signals<T>(start: impl FnOnce() -> T) -> Result<T, Failure> {
    let failure = |error: nix::errno::Errno| Failure::os("block signals", &error.into());
    let before = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(failure)?;
    let started = start();
    before.thread_set_mask().map_err(failure)?;
    Ok(started)
}

/// Injects the faults, and returns at the end of the drill.
async fn inject(args: &DrillArgs, faults: &mut Vec<Fault>) -> Result<(), Failure> {
    let start = Instant::now();
    let end = start + args.duration;
    // The same time before, between and after them.
    let interval = args.duration / u32::try_from(args.faults.len() + 1).unwrap_or(u32::MAX);
    for (n, command) in args.faults.iter().enumerate() {
        sleep_until(start + interval * u32::try_from(n + 1).unwrap_or(u32::MAX)).await;
        let fault = fault::run(command, end).await?;
        if let Some(failure) = &fault.failure {
            eprint_error(&format!("--fault {command}: {failure}\n{}", fault.output));
        }
        faults.push(fault);
    }
    sleep_until(end).await;
    Ok(())
}

async fn ended(contenders: &Contenders, limit: Duration) {
    let until = Instant::now() + limit;
    while !contenders.have_ended() && Instant::now() < until {
        sleep(POLL_INTERVAL).await;
    }
}

/// Releases what contenders left: on purpose, or because they could not reach the server.
fn remove(target: &Target, name: &str) -> Result<(), Failure> {
    let mut node = target.node_of(name.as_bytes())?;
    let lock = NamedLock::read(&mut node, name.as_bytes())?;
    for holder in lock.holders() {
        break_lock::release(&mut node, &lock, holder)?;
    }
    Ok(())
}
