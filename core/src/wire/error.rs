//! Why a request was rejected. The first word of the text is part of the interface; the rest says what to do.

use std::fmt;

use crate::deadlock::Cycle;
use crate::names::Limit;

/// Which maximum is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Full {
    /// That of one lock.
    Lock(usize),
    /// That of all locks, with the answers that are not acknowledged.
    Server(usize),
    /// That of inboxes.
    Inboxes(usize),
}

/// A rejected request. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Too few arguments; the text is the syntax of the command.
    MissingArgument(&'static str),
    /// An option that this command does not take.
    UnknownOption {
        /// The option.
        option: String,
        /// The syntax of the command.
        syntax: &'static str,
    },
    /// An option that was given twice.
    Repeated(&'static str),
    /// An option without its value.
    MissingValue(&'static str),
    /// Two options that exclude each other.
    Conflict(&'static str, &'static str),
    /// Not a plain decimal, or out of range.
    Number {
        /// The argument.
        what: &'static str,
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// A string that is empty or too long.
    Length {
        /// The argument.
        what: &'static str,
        /// The largest length.
        max: usize,
    },
    /// A re-entry with a stricter limit than the one held.
    Upgrade(Limit),
    /// More holds with a request id than an owner may have.
    TooManyRequestIds(usize),
    /// As many requests of this owner wait for the lock as could ever be granted with a request id.
    TooManyWaiting(usize),
    /// The hold count has reached its maximum.
    TooManyHolds,
    /// The fence counter has reached its maximum.
    FencesUsedUp,
    /// MINFENCE on a server that is not set up for a quorum.
    NoQuorum,
    /// A MINFENCE larger than this: other servers cannot have issued it, unless their clocks are far ahead.
    FenceTooLarge(u64),
    /// A MINFENCE for a holder that shares the lock: its fence cannot be raised.
    RaiseOfShared,
    /// The lock has no holders.
    NotHeld,
    /// Other owners hold the lock.
    NotOwner,
    /// This owner holds the lock under another fence.
    Stale,
    /// This owner holds the lock without a hold of the given request id.
    StaleRequestId,
    /// A grace period is running for this many more milliseconds.
    Grace(u64),
    /// The server may evict locks.
    Evictable,
    /// A request with this id waits with another limit.
    OtherLimit,
    /// As many requests wait as may.
    QueueFull(Full),
    /// There is no such inbox, or it has ended, or the cursor is not one of its last replies.
    NoInbox,
    /// Somebody receives from the inbox already.
    BusyInbox,
    /// The inbox belongs to another database or user.
    ForeignInbox,
    /// QUEUE without REQID.
    QueueWithoutId,
    /// A request with the same id has replaced this one.
    Replaced,
    /// Fewer replicas than required acknowledge changes now, or have acknowledged this one in time: a grant is rolled back.
    FewReplicas(usize),
    /// Nobody may be told before replicas know, and the client cannot be blocked.
    CannotHoldBack,
    /// The request would wait forever.
    Deadlock(Box<Cycle>),
    /// Bytes that are not a valid lock or change in a known encoding.
    InvalidEncoding,
    /// A state that is impossible, as far as we know.
    Internal(&'static str),
}

impl Error {
    /// For a state that is impossible. Tests fail.
    #[cold]
    pub fn internal(what: &'static str) -> Self {
        debug_assert!(false, "{what}");
        Self::Internal(what)
    }

    /// The stable first word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotHeld => "NOTHELD",
            Self::NotOwner => "NOTOWNER",
            Self::Stale | Self::StaleRequestId => "STALE",
            Self::Grace(_) => "GRACE",
            Self::Evictable => "EVICTABLE",
            Self::QueueFull(_) => "QUEUEFULL",
            Self::Replaced => "UNBLOCKED",
            Self::FewReplicas(_) | Self::CannotHoldBack => "NOREPLICAS",
            Self::NoInbox => "NOINBOX",
            Self::BusyInbox => "BUSYINBOX",
            Self::ForeignInbox => "NOPERM",
            Self::Deadlock(_) => "DEADLOCK",
            _ => "ERR",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.code())?;
        f.write_str(match self {
            Self::MissingArgument(syntax) => return write!(f, "too few arguments, the syntax is: {syntax}"),
            Self::UnknownOption { option, syntax } => {
                return write!(f, "unknown option '{option}', the syntax is: {syntax}");
            }
            Self::Repeated(option) => return write!(f, "{option} may be given only once"),
            Self::MissingValue(option) => return write!(f, "{option} requires a value"),
            Self::Conflict(a, b) => return write!(f, "{a} and {b} are mutually exclusive: use only one of them"),
            Self::Number { what, min, max } => {
                return write!(f, "value is not an integer or out of range: {what} must be {min} to {max}");
            }
            Self::Length { what, max } => return write!(f, "{what} must be 1 to {max} bytes long"),
            Self::Upgrade(held) => return write_upgrade(f, *held),
            Self::TooManyRequestIds(max) => {
                let advice = "release one, or omit REQID";
                return write!(f, "this owner already has {max} holds with a REQID on this lock: {advice}");
            }
            Self::TooManyWaiting(max) => {
                let advice = "use an owner for each task, or wait for the answers";
                return write!(f, "{max} requests of this owner already wait for this lock, the maximum: {advice}");
            }
            Self::TooManyHolds => "this owner has reached the maximum number of holds: release one first",
            Self::FencesUsedUp => "this server has used up its fencing tokens: move the locks to a new, empty server",
            Self::NoQuorum => {
                "MINFENCE is disabled on this server: set dlock.quorum yes if it is a member of a quorum"
            }
            Self::FenceTooLarge(max) => {
                let bound = "this server's clock plus its startup grace period";
                return write!(f, "MINFENCE must be at most {max}, {bound}: synchronize the clocks of the servers");
            }
            Self::RaiseOfShared => {
                "only the fence of a holder with limit 1 can be raised: release the lock and acquire it with that limit"
            }
            Self::NotHeld => {
                "nobody holds the lock (its lease expired or it was released): stop the work that relies on it"
            }
            Self::NotOwner => {
                "another owner holds the lock, this one does not: stop the work that relies on it"
            }
            Self::Stale => {
                "this owner does not hold the lock under the given fence: stop the work that relies on that fence"
            }
            Self::StaleRequestId => {
                "this owner holds the lock, but not under the given REQID: stop the work that relies on that request"
            }
            Self::Grace(ms) => {
                return write!(f, "a grace period after a start or a failover ends in {ms} ms: try again then");
            }
            Self::OtherLimit => "a request with this REQID is waiting with another limit: use a new REQID",
            Self::QueueFull(Full::Lock(0)) => {
                "waiting is disabled by dlock.max-waiters-per-lock 0: use neither BLOCK nor QUEUE"
            }
            Self::QueueFull(Full::Server(0)) => {
                "waiting is disabled by dlock.max-waiters 0: use neither BLOCK nor QUEUE"
            }
            Self::QueueFull(Full::Inboxes(0)) => {
                "inboxes are disabled by dlock.max-inboxes 0: use BLOCK instead of QUEUE and DLOCK.GRANTS"
            }
            Self::QueueFull(Full::Lock(max)) => {
                let setting = "dlock.max-waiters-per-lock";
                return write!(f, "{max} requests already wait for this lock, the maximum set by {setting}: try again later");
            }
            Self::QueueFull(Full::Server(max)) => {
                let counted = "waiters and unacknowledged answers";
                return write!(f, "this server has {max} {counted}, the maximum set by dlock.max-waiters: try again later");
            }
            Self::QueueFull(Full::Inboxes(max)) => {
                let setting = "dlock.max-inboxes";
                return write!(f, "this server has {max} inboxes, the maximum set by {setting}: try again later");
            }
            Self::NoInbox => {
                "the inbox does not exist or has ended, or the cursor is old: use DLOCK.GRANTS with cursor 0, \
                 then repeat the waiting requests"
            }
            Self::BusyInbox => "this inbox is already in use: use another, random name",
            Self::ForeignInbox => {
                "this inbox belongs to another ACL user or another database: use another, random name"
            }
            Self::QueueWithoutId => "QUEUE requires REQID, which identifies its answer",
            Self::Replaced => "replaced by a request with the same REQID",
            Self::FewReplicas(min) => {
                let reason = "replicas acknowledge changes in time";
                return write!(f, "the lock was not granted or extended: fewer than {min} {reason}, try again later");
            }
            Self::CannotHoldBack => {
                "with dlock.min-sync-replicas the reply waits for replicas: send it outside of transactions and scripts"
            }
            Self::Deadlock(cycle) => return cycle.fmt(f),
            Self::InvalidEncoding => "the change is not in an encoding that this version of the module supports",
            Self::Internal(what) => {
                return write!(f, "internal error: {what}; try again, and report it with the server's log");
            }
            Self::Evictable => {
                "maxmemory-policy may evict a held lock: use noeviction or volatile-*, or set dlock.allow-eviction yes"
            }
        })
    }
}

fn write_upgrade(f: &mut fmt::Formatter<'_>, held: Limit) -> fmt::Result {
    f.write_str("this owner already holds the lock ")?;
    match held.get() {
        Some(n) => write!(
            f,
            "with limit {n} and cannot use a stricter one: release it first"
        ),
        None => f.write_str("SHARED and cannot upgrade it: release it first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_lost_lock_tells_to_stop_and_not_how_to_pass_the_check() {
        for error in [
            Error::NotHeld,
            Error::NotOwner,
            Error::Stale,
            Error::StaleRequestId,
        ] {
            let text = error.to_string();
            assert!(text.contains("stop the work"), "{text}");
            for harm in ["acquire", "use"] {
                assert!(!text.contains(harm), "{harm}: {text}");
            }
        }
    }
}
