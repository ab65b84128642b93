//! An ACQUIRE: first what is due, then the decision.

use super::due;
use super::error::Error;
use super::host::{Flags, Host, Level, Process};
use super::lock_change::{Cause, decide};
use crate::deadlock::Cycle;
use crate::wire::{Acquire, Acquired};

/// A client that goes on trying must not fill the log.
const LOG_INTERVAL_MS: u64 = 1_000;

/// Carries out an ACQUIRE. `user`: who sends it, if it names an inbox.
pub fn acquire<H: Host>(
    host: &mut H,
    name: H::Name<'_>,
    flags: Flags,
    user: &[u8],
    request: &Acquire<'_>,
) -> Result<Acquired, Error> {
    // An expired lease must not look like a deadlock, and a retry must not find a grant that is to be rolled back.
    let are_due_first = request.wait.is_some() || host.state().server.inboxes.undelivered() > 0;
    let are_current = !are_due_first || due::process_before(host, flags, request);
    let acquired = decide(host, name, flags, Cause::Client, |transition| {
        if !are_current {
            transition.queues_are_behind();
        }
        transition.acquire(request, user)
    });
    if let Err(Error::Rejected(crate::wire::Error::Deadlock(cycle))) = &acquired {
        log_deadlock(host, cycle);
    }
    acquired
}

/// The error names only owners: the client may have no right to know the locks of the others.
fn log_deadlock(process: &mut impl Process, cycle: &Cycle) {
    let now = process.now();
    let schedule = &mut process.state().schedule;
    if schedule.next_deadlock_log <= now {
        schedule.next_deadlock_log = now.after_ms(LOG_INTERVAL_MS);
        process.log(Level::Notice, &format!("deadlock: {}", cycle.to_log_line()));
    }
}
