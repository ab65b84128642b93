//! Why commands fail.

use std::fmt;

use super::counters::increment;
use super::host::Process;
use super::internal_error::internal_error;
use crate::wire::Error as Rejection;

/// Why a command failed.
#[derive(Clone, Debug)]
pub enum Error {
    /// The request was rejected.
    Rejected(Rejection),
    /// The key has a value of another type.
    WrongType,
    /// A command that GUARD does not run, and what to do instead.
    NotGuarded(&'static str),
    /// The server did not even reply to the guarded command.
    NotRun,
    /// A key of the guarded command is in another slot than the lock.
    CrossSlot,
    /// It may be on either of two nodes.
    TryAgain,
    /// The server is writing the lock to a snapshot, on another thread.
    Saving,
    /// There is no memory for an inbox.
    OutOfMemory,
    /// A client writes to a replica that allows it.
    ReadOnly,
    /// A command that only primaries and logs may send.
    Internal,
    /// A change from a migration of slots that no server could have made, and why.
    Implausible(&'static str),
    /// The server refused to store the lock. It never should.
    NotStored,
}

impl Error {
    /// Counts an error that is about to be sent.
    pub fn count(&self, process: &mut impl Process) {
        if let Self::Rejected(Rejection::Internal(what)) = self {
            internal_error(process, what);
        }
        let counters = &mut process.state().counters;
        match self {
            Self::Rejected(error) => counters.rejected(error),
            Self::WrongType => increment(&mut counters.errors.wrongtype),
            // As if the server had found it.
            Self::CrossSlot | Self::TryAgain | Self::Saving | Self::OutOfMemory => {}
            Self::NotGuarded(_)
            | Self::NotRun
            | Self::ReadOnly
            | Self::Internal
            | Self::Implausible(_)
            | Self::NotStored => increment(&mut counters.errors.err),
        }
    }
}

impl From<Rejection> for Error {
    fn from(error: Rejection) -> Self {
        Self::Rejected(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected(error) => return error.fmt(f),
            Self::Implausible(reason) => return write!(f, "ERR {reason}"),
            Self::NotGuarded(reason) => return write!(f, "ERR DLOCK.GUARD does not run {reason}"),
            Self::NotRun => {
                "ERR the server did not run the command: send it without DLOCK.GUARD to see why"
            }
            Self::CrossSlot => {
                "CROSSSLOT the lock and the keys of the command must be in one slot: use a hash tag in their names"
            }
            Self::TryAgain => {
                "TRYAGAIN the slot of the lock is being migrated, and a key of the command may be on either node: try again"
            }
            Self::Saving => "TRYAGAIN the server is writing the lock to a snapshot: try again",
            Self::OutOfMemory => {
                "OOM used memory exceeds 'maxmemory', so that no inbox is created: free memory and try again"
            }
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::ReadOnly => "READONLY only the primary grants and releases locks: send the request there",
            Self::Internal => "ERR this command is for replication and the append-only file only",
            Self::NotStored => "ERR the server did not store the lock: nothing was granted, see its log and try again",
        })
    }
}
