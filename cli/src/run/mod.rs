//! `dlock run`: a command under a lock.

mod job;
mod signals;
mod teller;
mod terminal;

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_dlock_client::{Error, Event, EventKind, Guard, Lock, Locks, LostReason, Owner, Settings};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::job::{Change, Job};
use self::signals::Signals;
use self::teller::{Teller, Voice};
use crate::args::{OnLost, RunArgs};
use crate::exit::{Code, Failure};
use crate::server::Target;
use crate::text::shown;

/// So long a request that nobody wants any more may take to be taken back.
const WITHDRAWAL: Duration = Duration::from_secs(2);

pub fn run(args: &RunArgs, target: &Target) -> Result<ExitCode, Failure> {
    let teller = Teller::start().map_err(|error| cannot("start a thread", &error))?;
    let settings = Settings::default().on_event(tell_renewals(teller.voice().clone()));
    let locks = Locks::with(target.address()?, settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| cannot("start", &error))?;
    let exit = runtime.block_on(under_lock(args, &locks, teller.voice()));
    runtime.shutdown_background();
    teller.finish();
    exit
}

async fn under_lock(args: &RunArgs, locks: &Locks, voice: &Voice) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| cannot("listen to signals", &error))?;
    let owner = Owner::unique();
    let lock = lock(args, locks, &owner);
    let guard = tokio::select! {
        guard = lock.acquire() => match guard {
            Ok(guard) => guard,
            Err(error) => {
                if !matches!(error, Error::Busy) {
                    withdraw(&lock, &owner).await;
                }
                return Err(not_got(args, error));
            }
        },
        signal = signals.passed_on() => {
            withdraw(&lock, &owner).await;
            return Ok(ended_by(signal));
        }
    };
    let job = match Job::start(&args.command, &guard) {
        Ok(job) => job,
        Err(failure) => {
            // The failure is worth telling, not that the lock ends with its lease.
            let _ = guard.release().await;
            return Err(failure);
        }
    };
    let mut watch = Watch::new(args, &guard, job, voice);
    let exit = watch.until_end(&mut signals).await;
    let loss = watch.loss;
    give_back(args, guard, loss, exit, voice).await
}

fn lock(args: &RunArgs, locks: &Locks, owner: &Owner) -> Lock {
    let mut lock = locks
        .lock(args.name.as_bytes())
        .lease(args.lease)
        .owner(owner)
        .wait(if args.at_once {
            Duration::ZERO
        } else {
            args.wait.unwrap_or(Duration::MAX)
        });
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

/// A running command, and the lock that it needs.
struct Watch<'a> {
    args: &'a RunArgs,
    guard: &'a Guard,
    job: Job,
    voice: &'a Voice,
    loss: Option<LostReason>,
    /// When what has not ended is killed.
    kill_at: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(args: &'a RunArgs, guard: &'a Guard, job: Job, voice: &'a Voice) -> Self {
        Self {
            args,
            guard,
            job,
            voice,
            loss: None,
            kill_at: None,
        }
    }

    /// The exit code of the command.
    async fn until_end(&mut self, signals: &mut Signals) -> ExitCode {
        loop {
            let kill_at = self.kill_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                loss = self.guard.lost(), if self.loss.is_none() => self.lost(loss),
                () = sleep_until(kill_at), if self.kill_at.is_some() => {
                    self.kill_at = None;
                    self.job.signal(Signal::SIGKILL);
                }
                change = self.job.next_change() => match change {
                    Change::Ended(code) => return self.ended(ExitCode::from(code)),
                    Change::Killed(signal) => return self.ended(ended_by(signal)),
                    Change::Stopped(signal) => self.stopped(signal),
                },
                signal = signals.next() => match signal {
                    Signal::SIGCONT => self.continued(),
                    signal => self.job.signal(signal),
                },
            }
        }
    }

    fn lost(&mut self, loss: LostReason) {
        self.loss = Some(loss);
        let what = match self.args.on_lost {
            OnLost::Kill => {
                self.job.signal(Signal::SIGKILL);
                "the command is killed"
            }
            OnLost::Term => {
                self.job.signal(Signal::SIGTERM);
                // A command that is stopped would not hear of it.
                self.job.signal(Signal::SIGCONT);
                self.kill_at = Some(Instant::now() + self.args.kill_after);
                "the command is asked to end"
            }
            OnLost::Ignore => "the command goes on without it",
        };
        self.voice.say(format!(
            "the lock {} is lost: {loss}: {what}",
            shown(self.args.name.as_bytes())
        ));
    }

    /// The command has ended. What it started, and was asked to end with it, may not have.
    fn ended(&self, exit: ExitCode) -> ExitCode {
        if self.kill_at.is_some() {
            self.job.signal(Signal::SIGKILL);
        }
        exit
    }

    /// Somebody continues us. The lease may have ended meanwhile, which comes first.
    fn continued(&mut self) {
        if let (None, Some(loss)) = (self.loss, self.guard.lost_reason()) {
            self.lost(loss);
        }
        self.job.go_on();
    }

    /// As the user stopped the command, so stops the whole, and the shell gets its terminal back. The lease
    /// goes on, and may end meanwhile.
    fn stopped(&self, by: Signal) {
        if self.job.only_wants_terminal(by) {
            self.job.go_on_with_terminal();
        } else {
            self.job.stop_along();
        }
    }
}

/// Gives the lock back, and tells how it all ended.
async fn give_back(
    args: &RunArgs,
    guard: Guard,
    told: Option<LostReason>,
    exit: ExitCode,
    voice: &Voice,
) -> Result<ExitCode, Failure> {
    let name = shown(args.name.as_bytes());
    let noticed = match told {
        Some(loss) => Some(loss),
        None => last_look(&guard).await,
    };
    let loss = match (noticed, guard.release().await) {
        (Some(loss), _) | (None, Err(Error::Lost(loss))) => Some(loss),
        (None, Ok(_)) => None,
        (None, Err(error)) => {
            voice.say(format!(
                "the command has ended, the lock {name} may be held until its lease ends: {error}"
            ));
            None
        }
    };
    let Some(loss) = loss else {
        return Ok(exit);
    };
    if told.is_none() {
        voice.say(format!(
            "the lock {name} was lost before the command ended: {loss}"
        ));
    }
    Ok(match args.on_lost {
        OnLost::Ignore => exit,
        OnLost::Kill | OnLost::Term => Code::Lost.into(),
    })
}

/// Whether the lock was held to the end: a release does not tell, since it may be repeated.
async fn last_look(guard: &Guard) -> Option<LostReason> {
    match guard.extend(Duration::from_millis(1)).await {
        Err(Error::Lost(loss)) => Some(loss),
        _ => None,
    }
}

/// Waits until the server does not know of the request any more: a grant that nobody hears of would keep
/// others out until its lease ends.
async fn withdraw(lock: &Lock, owner: &Owner) {
    let gone = async {
        while let Ok(Some(info)) = lock.info().await {
            let holds = info.holders.iter().any(|holder| holder.owner == *owner);
            let waits = info.waiters.iter().any(|waiter| waiter.owner == *owner);
            if !holds && !waits {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    // In vain: the end of the connection, or the lease, does the same.
    let _ = timeout(WITHDRAWAL, gone).await;
}

/// Tells the user of trouble with renewals, once each time it begins.
fn tell_renewals(voice: Voice) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let in_trouble = AtomicBool::new(false);
    move |event| {
        let name = shown(event.key);
        match event.kind {
            // That a lock is lost is told by whoever acts on it.
            EventKind::RenewFailed { error, .. }
                if !error.is_lost() && !in_trouble.swap(true, Ordering::Relaxed) =>
            {
                voice.say(format!(
                    "the lease of {name} is not renewed, trying again: {error}"
                ));
            }
            EventKind::Renewed { .. } if in_trouble.swap(false, Ordering::Relaxed) => {
                voice.say(format!("the lease of {name} is renewed again"));
            }
            _ => {}
        }
    }
}

fn not_got(args: &RunArgs, error: Error) -> Failure {
    let name = shown(args.name.as_bytes());
    if let Error::Lost(_) = error {
        let message = format!(
            "{name}: the lock was granted, but its lease had ended when the answer came: see --lease"
        );
        return Failure::new(Code::NotGot, message);
    }
    let failure = Failure::from(error);
    // The server does not know what the option is called here.
    let hint = if failure.message.contains("lease-ms") {
        ": give another one with --lease"
    } else {
        ""
    };
    Failure::new(failure.code, format!("{name}: {}{hint}", failure.message))
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::System, format!("cannot {what}: {error}"))
}

fn ended_by(signal: Signal) -> ExitCode {
    ExitCode::from(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or_default()))
}
