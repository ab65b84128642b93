//! GUARD: the check before a command is run.

use super::counters::increment;
use super::error::Error;
use super::host::{Flags, Host, Stored};
use super::read::begin_read;
use crate::lock::Lock;
use crate::wire::Guard;

/// What the commands of the module begin with.
const OWN_PREFIX: &[u8] = b"dlock.";

/// What these change belongs to a connection, and a module's call has one of its own.
const OF_CONNECTIONS: [&str; 6] = ["SELECT", "READONLY", "READWRITE", "ASKING", "WAIT", "WAITAOF"];

/// Rejects what GUARD does not run.
pub fn check_command(command: &[u8]) -> Result<(), Error> {
    let start = command.get(..OWN_PREFIX.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX)) {
        return Err(Error::NotGuarded("DLOCK commands: send them on their own"));
    }
    let mut of_connections = OF_CONNECTIONS.iter();
    if of_connections.any(|name| command.eq_ignore_ascii_case(name.as_bytes())) {
        return Err(Error::NotGuarded(
            "commands about the connection: send them on their own, before or after",
        ));
    }
    Ok(())
}

/// Whether the owner holds the lock under this fence: what remains of the lease, in milliseconds. The key is closed again
/// at the end: the command that is guarded may delete or replace this lock.
pub fn check<H: Host>(
    host: &mut H,
    name: H::Name<'_>,
    flags: Flags,
    request: &Guard<'_>,
) -> Result<u64, Error> {
    if !flags.is_active_primary() {
        return Err(Error::ReadOnly);
    }
    let clock = begin_read(host, flags);
    let checked = host.read(name, |stored, _| match stored {
        Stored::Lock(value) => request.check(&value.lock, clock),
        // Another type too: for the caller the lock is lost either way.
        Stored::Nothing | Stored::OtherType => request.check(&Lock::default(), clock),
    });
    let counters = &mut host.state().counters;
    increment(match checked {
        Ok(_) => &mut counters.guarded,
        Err(_) => &mut counters.guards_refused,
    });
    Ok(checked?)
}
