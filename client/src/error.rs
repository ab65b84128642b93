use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

#[cfg(feature = "locks")]
use crate::hold::LostReason;
#[cfg(feature = "redlock")]
use crate::redlock::NoQuorum;

/// What went wrong, and what to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Others hold the lock, or stand in its queue. Try again later, or wait.
    Busy,
    /// The lock was not granted in time.
    #[non_exhaustive]
    Timeout {
        /// Which lock, as text: of several, the one that was not granted.
        key: String,
        /// For how long it was waited.
        waited: Duration,
        /// What went wrong on the last attempt; `None` when others simply held the lock.
        last: Option<Box<Self>>,
    },
    /// Nobody holds the lock: the lease ended. What was done meanwhile was not protected to its end.
    NotHeld,
    /// Others hold the lock: the lease ended, and somebody else was granted it.
    NotOwner,
    /// The owner holds the lock, but by a later acquisition: the lease of this one ended.
    Stale,
    /// The lock is lost. See [`LostReason`].
    #[cfg(feature = "locks")]
    Lost(LostReason),
    /// Waiting could never end: each of the owners that are named waits for the next one. Nothing was queued.
    Deadlock(String),
    /// So many wait for the lock that the server takes no more.
    QueueFull(String),
    /// The server has been started or promoted, and grants nothing for a while; it says for how long.
    Grace(String),
    /// The server could evict locks, so it grants none; it says what to change.
    Evictable(String),
    /// Too few of several servers agreed; it names them.
    #[cfg(feature = "redlock")]
    NoQuorum(NoQuorum),
    /// The server does not have the module.
    ModuleMissing,
    /// Too few servers had the lock in time. It is being given back: asked for again at once, it may still be busy.
    #[cfg(feature = "locks")]
    #[non_exhaustive]
    Unreplicated {
        /// So many replicas had to acknowledge it; where it is to be on disk, the primary counts, too.
        needed: u32,
        /// So many did.
        acknowledged: u32,
    },
    /// The release was sent, and no answer tells whether it, or a loss before it, ended the hold. The lock is free when
    /// its lease ends, if not before.
    Unconfirmed(Box<Self>),
    /// An address or an option that cannot be: what is wrong with it.
    Invalid(String),
    /// Anything else: the connection, or another error of the server.
    Redis(RedisError),
}

impl Error {
    /// Whether the same request may succeed a little later: the connection was lost, or the server is not
    /// ready to serve it just now.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Grace(_) => true,
            #[cfg(feature = "redlock")]
            Self::NoQuorum(failure) => failure.is_transient(),
            Self::Redis(error) => is_transient(error),
            _ => false,
        }
    }

    /// Whether the lock is not held any more: the server says so, or the lease may have ended.
    pub fn is_lost(&self) -> bool {
        #[cfg(feature = "locks")]
        if let Self::Lost(_) = self {
            return true;
        }
        matches!(self, Self::NotHeld | Self::NotOwner | Self::Stale)
    }

    /// The error of redis-rs, where it has no name of its own here.
    #[cfg(feature = "locks")]
    pub(crate) fn as_redis(&self) -> Option<&RedisError> {
        match self {
            Self::Redis(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server does not know a command whose name begins so, in small letters.
    #[cfg(feature = "locks")]
    pub(crate) fn is_unknown_command(&self, name: &str) -> bool {
        self.as_redis()
            .is_some_and(|error| is_unknown_command(error, name))
    }

    /// The lock was not granted in time.
    #[cfg(feature = "locks")]
    pub(crate) fn timeout(key: &[u8], waited: Duration, last: Option<Self>) -> Self {
        Self::Timeout {
            key: String::from_utf8_lossy(key).into_owned(),
            waited,
            last: last.map(Box::new),
        }
    }

    /// The server did not answer in time.
    #[cfg(feature = "locks")]
    pub(crate) fn no_response() -> Self {
        let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Self::Redis(error.into())
    }

    /// Whether the request may or may not have been carried out: no answer came. Only of a request that was sent; of an
    /// attempt to connect this says nothing.
    #[cfg(feature = "locks")]
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Io || error.kind() == ErrorKind::Parse)
    }
}

fn is_transient(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel => true,
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
        ),
        ErrorKind::Extension => {
            matches!(
                error.code(),
                Some("NOREPLICAS" | "OOM" | "MISCONF" | "UNBLOCKED" | "BUSY")
            )
        }
        _ => false,
    }
}

/// An [`Address`](crate::Address) is one already.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let detail = || error.detail().unwrap_or_default().to_owned();
        match error.code() {
            Some("NOTHELD") => Self::NotHeld,
            Some("NOTOWNER") => Self::NotOwner,
            Some("STALE") => Self::Stale,
            Some("DEADLOCK") => Self::Deadlock(detail()),
            Some("QUEUEFULL") => Self::QueueFull(detail()),
            Some("GRACE") => Self::Grace(detail()),
            Some("EVICTABLE") => Self::Evictable(detail()),
            Some("ERR") if is_unknown_command(&error, "dlock.") => Self::ModuleMissing,
            _ => Self::Redis(error),
        }
    }
}

/// `unknown command 'DLOCK.ACQUIRE', with args beginning with: ...`; older servers quote it with backticks.
fn is_unknown_command(error: &RedisError, name: &str) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    let command = detail.strip_prefix("unknown command ");
    command.is_some_and(|command| command.trim_start_matches(['\'', '`', '"']).starts_with(name))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("others hold the lock or wait for it: try again later, or wait"),
            Self::Timeout {
                key,
                waited,
                last: None,
            } => write!(f, "others held {key} for all of {waited:?}"),
            Self::Timeout {
                key,
                waited,
                last: Some(last),
            } => write!(
                f,
                "no lock of {key} within {waited:?}, the last attempt failed: {last}"
            ),
            Self::NotHeld => f.write_str("the lease had ended, nobody holds the lock: acquire it again"),
            Self::NotOwner => f.write_str("the lease had ended, others hold the lock: acquire it again"),
            Self::Stale => f.write_str("the lease had ended, the owner has acquired the lock again since"),
            #[cfg(feature = "locks")]
            Self::Lost(reason) => write!(f, "the lock is lost: {reason}"),
            Self::Deadlock(detail) => write!(
                f,
                "waiting would be a deadlock, release something first: {detail}"
            ),
            Self::QueueFull(detail) => write!(f, "too many wait for the lock: {detail}"),
            Self::Grace(detail) => write!(f, "the server grants nothing yet: {detail}"),
            Self::Evictable(detail) => write!(f, "the server could evict locks: {detail}"),
            #[cfg(feature = "redlock")]
            Self::NoQuorum(failure) => failure.fmt(f),
            #[cfg(feature = "locks")]
            Self::Unreplicated { needed, acknowledged } => write!(
                f,
                "only {acknowledged} of {needed} servers acknowledged the lock in time, so it was given back"
            ),
            Self::ModuleMissing => f.write_str(
                "the server does not have the DLOCK module: add `loadmodule /path/to/libdlock.so` to its \
                 configuration and restart it, or send it `MODULE LOAD /path/to/libdlock.so`",
            ),
            Self::Unconfirmed(last) => write!(
                f,
                "it is not known whether the lock was released, it is free when its lease ends: {last}"
            ),
            Self::Invalid(what) => f.write_str(what),
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Timeout {
                last: Some(error), ..
            }
            | Self::Unconfirmed(error) => Some(&**error),
            Self::Redis(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str, detail: &str) -> Error {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned())).into()
    }

    #[test]
    fn a_server_without_the_module_is_told_apart_and_the_error_says_how_to_load_it() {
        for quote in ['\'', '`'] {
            let error = answered(
                "ERR",
                &format!("unknown command {quote}DLOCK.ACQUIRE{quote}, with args"),
            );
            assert!(matches!(error, Error::ModuleMissing), "{error:?}");
            assert!(error.to_string().contains("loadmodule"));
        }
        assert!(matches!(
            answered("ERR", "unknown command 'NONSENSE'"),
            Error::Redis(_)
        ));
    }

    #[cfg(feature = "redlock")]
    #[test]
    fn too_few_servers_are_worth_another_try_when_those_that_failed_are() {
        let no_quorum = |errors: &[Error]| {
            let failures = errors.iter().map(|error| crate::redlock::NodeFailure {
                node: "redis://127.0.0.1/".parse().unwrap(),
                error: error.clone(),
            });
            Error::NoQuorum(NoQuorum {
                needed: 2,
                agreed: 0,
                failures: failures.collect(),
            })
        };
        let grace_error = || answered("GRACE", "");
        assert!(no_quorum(&[Error::no_response(), grace_error()]).is_transient());
        assert!(no_quorum(&[Error::Busy, Error::no_response()]).is_transient());
        assert!(!no_quorum(&[Error::Busy, Error::Busy]).is_transient());
        assert!(!no_quorum(&[Error::no_response(), answered("NOAUTH", "")]).is_transient());
    }

    #[test]
    fn an_error_is_either_a_lost_lock_or_worth_another_try_or_final() {
        for code in ["NOTHELD", "NOTOWNER", "STALE"] {
            let error = answered(code, "");
            assert!(error.is_lost() && !error.is_transient(), "{code}");
        }
        for code in ["NOREPLICAS", "GRACE", "OOM", "MISCONF", "UNBLOCKED"] {
            let error = answered(code, "");
            assert!(error.is_transient() && !error.is_lost(), "{code}");
        }
        for code in ["ERR", "WRONGTYPE", "DEADLOCK", "QUEUEFULL", "EVICTABLE", "NOAUTH"] {
            let error = answered(code, "");
            assert!(!error.is_transient() && !error.is_lost(), "{code}");
        }
    }
}
