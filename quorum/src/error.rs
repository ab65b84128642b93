use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::command::LockInfo;

/// What went wrong, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Others hold the lock or are queued for it. Try again later, or wait.
    #[error("others hold the lock or are queued for it: try again later, or wait")]
    Busy,
    /// As [`Error::Busy`], with the holders and waiters.
    #[cfg_attr(feature = "locks", doc = "See [`Lock::explain`](crate::Lock::explain).")]
    #[error(fmt = held_by)]
    HeldBy(Box<LockInfo>),
    /// The lock was not granted in time.
    #[non_exhaustive]
    #[error("timed out after {:?} waiting for {key}{}", to_whole_ms(*.waited), last_error(.last))]
    Timeout {
        /// The lock, as text: of several, the one that was not granted.
        key: String,
        /// How long the request waited.
        waited: Duration,
        /// The error of the last attempt, if the server was unavailable; `None` if others simply held the lock.
        #[source]
        last: Option<Cause>,
    },
    /// Nobody holds the lock: the lease has expired. The work was not protected to its end.
    #[error("the lease has expired and nobody holds the lock: acquire it again")]
    NotHeld,
    /// Others hold the lock: the lease has expired, and the lock was granted to another owner.
    #[error("the lease has expired and others hold the lock: acquire it again")]
    NotOwner,
    /// The owner holds the lock by a later acquisition: the lease of this one has expired.
    #[error("the lease has expired and the owner has acquired the lock again since")]
    Stale,
    /// The lock is lost. See [`LostReason`].
    #[error("the lock is lost: {0}")]
    Lost(LostReason),
    /// Waiting would never end: each of the named owners waits for the next one. Nothing was queued.
    #[error("waiting would be a deadlock, release a lock first: {0}")]
    Deadlock(String),
    /// The queue of the lock is full.
    #[error("the queue of the lock is full: {0}")]
    QueueFull(String),
    /// The server was started or promoted, and its grace period is still running; the text says how long.
    #[error("the server's grace period is running: {0}")]
    Grace(String),
    /// The server could evict locks, so it grants none; the text says what to change.
    #[error("the server could evict locks: {0}")]
    Evictable(String),
    /// Too few of several servers agreed; the text names the others.
    #[cfg(feature = "quorum")]
    #[error("{0}")]
    NoQuorum(NoQuorum),
    /// The server has not loaded the module.
    #[error(
        "the server has not loaded the DLOCK module: add `loadmodule /path/to/libdlock.so` to its configuration and \
         restart it, or send it `MODULE LOAD /path/to/libdlock.so`"
    )]
    ModuleMissing,
    /// Too few servers acknowledged the grant in time. The lock is being released: an immediate retry may find it busy.
    #[non_exhaustive]
    #[error("only {acknowledged} of {needed} servers acknowledged the lock in time, so it was released")]
    Unreplicated {
        /// How many replicas had to acknowledge it; with `fsynced`, the primary counts, too.
        needed: u32,
        /// How many did.
        acknowledged: u32,
    },
    /// The release was sent, but no reply tells whether it ended the hold, or a loss before it. The lock is free when its
    /// lease expires at the latest.
    #[error("no reply confirmed the release, the lock is free when its lease expires at the latest: {0}")]
    Unconfirmed(#[source] Cause),
    /// An invalid address or option: what is wrong with it.
    #[error("{0}")]
    Invalid(String),
    /// Any other error, of the connection or of the server.
    #[error("{0}")]
    Redis(#[source] RequestError),
}

/// The error behind another one, to which it dereferences. It is no [`std::error::Error`], so that
/// [`source`](std::error::Error::source) is the [`Error`] in it and can be downcast.
#[derive(Clone, Debug)]
pub struct Cause(Box<Error>);

/// An error of redis-rs, to which it dereferences, and the server that it is about.
#[derive(Clone, Debug, thiserror::Error)]
pub struct RequestError {
    server: Option<Arc<str>>,
    #[source]
    error: RedisError,
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease was not renewed in time, as far as the client knows: the server may have been unavailable.
    #[error("the lease was not renewed in time")]
    LeaseExpired,
    /// The lock was held for the maximum time.
    #[error("it was held for the maximum time")]
    MaxHoldExceeded,
    /// The server reports that nobody holds the lock.
    #[error("the server reports that nobody holds it")]
    NotHeld,
    /// The server reports that others hold the lock.
    #[error("the server reports that others hold it")]
    NotOwner,
    /// The server reports that the owner holds the lock by a later acquisition.
    #[error("the server reports that its owner has acquired it again since")]
    Stale,
}

/// Too few of several servers agreed, and why the others did not.
#[cfg(feature = "quorum")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NoQuorum {
    /// How many servers had to agree.
    pub needed: usize,
    /// How many had agreed when it was certain that too few would.
    pub agreed: usize,
    /// Those that had refused or failed by then.
    pub failures: Vec<NodeFailure>,
}

/// Why one of several servers did not agree.
#[cfg(feature = "quorum")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The server's address, without credentials.
    pub server: String,
    /// Its error.
    pub error: Error,
}

impl Error {
    /// Whether the same request may succeed later without any change: the server was unavailable or not ready, the queue
    /// was full, or replicas were late.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Grace(_) | Self::QueueFull(_) | Self::Unreplicated { .. } => true,
            Self::Timeout { last, .. } => last.as_ref().is_some_and(|last| last.is_transient()),
            #[cfg(feature = "quorum")]
            Self::NoQuorum(failure) => failure.is_transient(),
            Self::Redis(error) => is_transient(error),
            _ => false,
        }
    }

    /// Whether the lock is not held any more: the server says so, or the lease may have expired.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::NotHeld | Self::NotOwner | Self::Stale)
    }
}

#[cfg(feature = "locks")]
impl Error {
    /// The error of redis-rs, if it is no other variant.
    pub(crate) fn as_redis(&self) -> Option<&RedisError> {
        match self {
            Self::Redis(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server does not know this command; `name` is in lower case.
    pub(crate) fn is_unknown_command(&self, name: &str) -> bool {
        let detail = self.as_redis().and_then(RedisError::detail);
        detail.is_some_and(|detail| is_unknown_command(detail, name))
    }

    pub(crate) fn timeout(key: &[u8], waited: Duration, last: Option<Self>) -> Self {
        Self::Timeout {
            key: String::from_utf8_lossy(key).into_owned(),
            waited,
            last: last.map(Cause::from),
        }
    }

    /// Names the server, where that is not done yet.
    pub(crate) fn at_server(mut self, address: &impl fmt::Display) -> Self {
        match &mut self {
            Self::Redis(error) => _ = error.server.get_or_insert_with(|| address.to_string().into()),
            Self::Timeout {
                last: Some(Cause(last)),
                ..
            }
            | Self::Unconfirmed(Cause(last)) => {
                **last = last.clone().at_server(address);
            }
            _ => {}
        }
        self
    }

    /// The server did not respond in time.
    pub(crate) fn no_response() -> Self {
        RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)).into()
    }

    /// Whether the server may have carried out the request, because no reply arrived. Meaningful only for a request that
    /// was sent, not for an attempt to connect.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let kind = self.as_redis().map(RedisError::kind);
        matches!(kind, Some(ErrorKind::Io | ErrorKind::Parse))
    }

    /// Why the lock is lost, if this is what the server says about the holder.
    pub(crate) fn reported_loss(&self) -> Option<LostReason> {
        match self {
            Self::NotHeld => Some(LostReason::NotHeld),
            Self::NotOwner => Some(LostReason::NotOwner),
            Self::Stale => Some(LostReason::Stale),
            _ => None,
        }
    }
}

fn is_transient(error: &RedisError) -> bool {
    use ErrorKind::{
        ClusterConnectionNotFound, Io, MasterNameNotFoundBySentinel, NoValidReplicasFoundBySentinel, Parse,
    };
    match error.kind() {
        Io
        | Parse
        | ClusterConnectionNotFound
        | MasterNameNotFoundBySentinel
        | NoValidReplicasFoundBySentinel => true,
        _ => matches!(
            error.code(),
            Some("LOADING" | "READONLY" | "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN")
                | Some("NOREPLICAS" | "OOM" | "MISCONF" | "UNBLOCKED" | "BUSY")
        ),
    }
}

#[cfg(feature = "quorum")]
impl NodeFailure {
    pub(crate) fn at(server: &impl fmt::Display, error: Error) -> Self {
        Self {
            server: server.to_string(),
            error,
        }
    }
}

#[cfg(feature = "quorum")]
impl NoQuorum {
    /// Whether a retry may succeed: some servers were unavailable, and none rejected the request for good. Servers on
    /// which others hold the lock count as neither.
    pub(crate) fn is_transient(&self) -> bool {
        let errors = self.failures.iter().map(|failure| &failure.error);
        let mut others = errors.filter(|error| !matches!(error, Error::Busy)).peekable();
        others.peek().is_some() && others.all(Error::is_transient)
    }
}

impl RequestError {
    /// The address of the server, without credentials, as far as known: for errors of your own connections it is not.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

impl Deref for Cause {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Deref for RequestError {
    type Target = RedisError;

    fn deref(&self) -> &RedisError {
        &self.error
    }
}

/// For functions that take an `Address` as well as text.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<RedisError> for Error {
    /// Of a pipeline with several errors, the first one counts.
    fn from(error: RedisError) -> Self {
        let replies = error.clone().into_server_errors();
        let reply = replies.as_deref().and_then(<[_]>::first);
        let (code, detail) = reply.map_or(("", ""), |(_, reply)| {
            (reply.code(), reply.details().unwrap_or_default())
        });
        match code {
            "NOTHELD" => Self::NotHeld,
            "NOTOWNER" => Self::NotOwner,
            "STALE" => Self::Stale,
            "DEADLOCK" => Self::Deadlock(detail.to_owned()),
            "QUEUEFULL" => Self::QueueFull(detail.to_owned()),
            "GRACE" => Self::Grace(detail.to_owned()),
            "EVICTABLE" => Self::Evictable(detail.to_owned()),
            "ERR" if is_unknown_command(detail, "dlock.") => Self::ModuleMissing,
            _ => Self::Redis(RequestError { server: None, error }),
        }
    }
}

/// `unknown command 'DLOCK.ACQUIRE', with args beginning with: ...`; older servers quote it with backticks.
fn is_unknown_command(detail: &str, name: &str) -> bool {
    let detail = detail.to_ascii_lowercase();
    let command = detail.strip_prefix("unknown command ");
    command.is_some_and(|command| command.trim_start_matches(['\'', '`', '"']).starts_with(name))
}

fn held_by(info: &LockInfo, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((first, others)) = info.holders.split_first() else {
        return write!(f, "{} others wait for the lock", info.waiting);
    };
    write!(f, "{} has held the lock for {:?}", first.owner, first.held)?;
    match others.len() {
        0 => Ok(()),
        others => write!(f, ", and {others} others hold it, too"),
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        match (self.error.code(), self.error.detail()) {
            // As the server sent it.
            (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
            _ => self.error.fmt(f),
        }
    }
}

#[cfg(feature = "quorum")]
impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, agreed, .. } = self;
        write!(f, "{needed} servers had to agree, but only {agreed} did")?;
        for (n, NodeFailure { server, error }) in self.failures.iter().enumerate() {
            f.write_str(if n == 0 { ": " } else { "; " })?;
            match error {
                Error::Redis(error) => write!(f, "{error}")?,
                error => write!(f, "{server}: {error}")?,
            }
        }
        Ok(())
    }
}

/// Microseconds would only make the text longer.
fn to_whole_ms(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}

fn last_error(last: &Option<Cause>) -> String {
    match last {
        None => ": others held it".into(),
        Some(last) => format!("; last error: {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str, detail: &str) -> Error {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned())).into()
    }

    #[test]
    fn missing_module_is_recognized_and_error_says_how_to_load_it() {
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

    #[cfg(feature = "locks")]
    #[test]
    fn server_error_is_displayed_with_its_server_as_it_was_sent() {
        let error = answered("NOAUTH", "Authentication required.").at_server(&"127.0.0.1:6379");
        assert_eq!(
            error.to_string(),
            "127.0.0.1:6379: NOAUTH Authentication required."
        );
        let timeout = Error::timeout(b"door", Duration::from_secs(1), Some(Error::no_response()));
        let text = timeout.at_server(&"example.com:7000").to_string();
        assert!(
            text.ends_with("last error: example.com:7000: timed out"),
            "{text}"
        );
        // Where the server is known, it stays.
        assert!(error.at_server(&"other").to_string().starts_with("127.0.0.1"));
    }

    #[test]
    fn errors_are_lost_transient_or_final() {
        for code in ["NOTHELD", "NOTOWNER", "STALE"] {
            let error = answered(code, "");
            assert!(error.is_lost() && !error.is_transient(), "{code}");
        }
        for code in ["NOREPLICAS", "GRACE", "OOM", "MISCONF", "UNBLOCKED", "QUEUEFULL"] {
            let error = answered(code, "");
            assert!(error.is_transient() && !error.is_lost(), "{code}");
        }
        for code in ["ERR", "WRONGTYPE", "DEADLOCK", "EVICTABLE", "NOAUTH"] {
            let error = answered(code, "");
            assert!(!error.is_transient() && !error.is_lost(), "{code}");
        }
    }

    #[test]
    fn source_of_an_error_is_the_error_behind_it() {
        let behind = || Some(Cause::from(Error::QueueFull("64".into())));
        let timeout = Error::Timeout {
            key: "door".into(),
            waited: Duration::ZERO,
            last: behind(),
        };
        for error in [timeout, Error::Unconfirmed(behind().unwrap())] {
            let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
            assert!(matches!(source, Some(Error::QueueFull(_))), "{error:?}");
        }
    }

    #[cfg(feature = "locks")]
    #[test]
    fn timeout_is_printed_in_whole_milliseconds() {
        let error = Error::timeout(b"door", Duration::from_micros(1_512_637), None);
        assert_eq!(
            error.to_string(),
            "timed out after 1.512s waiting for door: others held it"
        );
    }

    #[cfg(feature = "locks")]
    #[test]
    fn timeout_is_transient_if_the_server_was_unavailable() {
        let timeout = |last| Error::timeout(b"door", Duration::from_secs(1), last);
        assert!(timeout(Some(Error::no_response())).is_transient());
        assert!(!timeout(None).is_transient());
        assert!(!timeout(Some(answered("NOAUTH", ""))).is_transient());
        let unreplicated = Error::Unreplicated {
            needed: 2,
            acknowledged: 1,
        };
        assert!(unreplicated.is_transient());
    }

    #[cfg(feature = "quorum")]
    #[test]
    fn missing_quorum_is_transient_if_all_failures_are() {
        let no_quorum = |errors: &[Error]| {
            let failures = errors.iter().map(|error| NodeFailure {
                server: "127.0.0.1:6379".into(),
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
}
