//! What went wrong, and what to do.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

/// What went wrong, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock is lost, or was never held: the work was not protected to its end.
    #[error("the lock is lost: {0}")]
    Lost(#[from] Lost),
    /// The lock was not granted in time.
    #[error("timed out after {:?} waiting for {key}{}", to_whole_ms(*.waited), Said(.last, *.last_for))]
    Timeout {
        /// The lock, as text.
        key: String,
        /// How long the request waited.
        waited: Duration,
        /// What the server said last, or why it did not; `None` if others simply held the lock.
        #[source]
        last: Option<Box<Self>>,
        /// For how long it had been so.
        last_for: Duration,
    },
    /// Waiting would never end: each of the named owners waits for the next one. Nothing was queued.
    #[error("waiting would deadlock: {0}")]
    Deadlock(String),
    /// Too many requests wait for this lock, or for all locks of the server.
    #[error("the queue is full: {0}")]
    QueueFull(String),
    /// The server was started or promoted, and its grace period is still running; the text says how long.
    #[error("the server's grace period is running: {0}")]
    Grace(String),
    /// The server could evict locks, so it grants none; the text says what to change.
    #[error("the server could evict locks: {0}")]
    Evictable(String),
    /// The server has not loaded the module.
    #[error(
        "{}the server has not loaded the DLOCK module: add `loadmodule /path/to/libdlock.so` to its configuration and \
         restart it, or send it `MODULE LOAD /path/to/libdlock.so`", Of(.server)
    )]
    ModuleMissing {
        /// The address of the server, without credentials.
        server: Option<Arc<str>>,
    },
    /// The release was sent, but no reply says whether it ended the hold, or an earlier loss did. The lock is free once its
    /// lease expires.
    #[error("no reply confirmed the release, but the lock is free once its lease expires: {0}")]
    Unconfirmed(#[source] Box<Self>),
    /// An invalid address, option or use: what is wrong with it.
    #[error("{0}")]
    Invalid(String),
    /// Any other error, of the connection or of the server.
    #[error("{}{}", Of(.server), Text(.error))]
    Redis {
        /// The address of the server, without credentials, if known: it is not for errors of your own connections.
        server: Option<Arc<str>>,
        /// The error.
        #[source]
        error: RedisError,
    },
}

/// Why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The lease was not renewed in time, as far as the client knows: the server may have been unavailable.
    #[error("the lease was not renewed in time")]
    LeaseExpired,
    /// It was held for the maximum time: see [`Lock::max_hold`](crate::Lock::max_hold).
    #[error("it was held for the maximum time")]
    MaxHold,
    /// The server reports that nobody holds the lock.
    #[error("the server reports that nobody holds it")]
    NotHeld,
    /// The server reports that others hold the lock.
    #[error("the server reports that others hold it")]
    NotOwner,
    /// The server reports that the owner holds the lock by a later acquisition.
    #[error("the server reports that its owner has acquired it again since")]
    Stale,
    /// The key of the lock holds another type.
    #[error("its key holds another type now")]
    WrongType,
}

impl Lost {
    /// Whether the server has said so, and has no hold of this owner. After [`Lost::Stale`] it may have one of the same
    /// request: if the lock was broken between two of its sendings, each was granted.
    pub(crate) fn leaves_nothing(self) -> bool {
        matches!(self, Self::NotHeld | Self::NotOwner | Self::WrongType)
    }
}

impl Error {
    /// Whether the same request may succeed later without any change: the server was unavailable or not ready, the queue
    /// was full, or replicas were late.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Grace(_) | Self::QueueFull(_) => true,
            Self::Timeout { last, .. } => last.as_ref().is_some_and(|last| last.is_transient()),
            Self::Redis { error, .. } => is_transient(error),
            _ => false,
        }
    }

    /// The server did not respond in time.
    pub(crate) fn no_response() -> Self {
        RedisError::from(io::Error::from(io::ErrorKind::TimedOut)).into()
    }

    /// The runtime of [`Settings::background`](crate::Settings::background) has ended.
    pub(crate) fn no_background() -> Self {
        Self::Invalid(
            "the runtime in which leases are renewed has ended: open the locks in one that lasts".into(),
        )
    }

    /// The reply is none that a server with the module sends.
    pub(crate) fn unreadable() -> Self {
        RedisError::from((ErrorKind::Parse, "the reply is not that of a lock")).into()
    }

    /// Names the server, where that is not done yet.
    pub(crate) fn at(mut self, address: &Arc<str>) -> Self {
        match &mut self {
            Self::Redis { server, .. } | Self::ModuleMissing { server } => {
                _ = server.get_or_insert_with(|| Arc::clone(address))
            }
            Self::Timeout { last: Some(last), .. } | Self::Unconfirmed(last) => {
                **last = last.as_ref().clone().at(address);
            }
            _ => {}
        }
        self
    }

    /// The error of redis-rs, if it is no other variant.
    pub(crate) fn as_redis(&self) -> Option<&RedisError> {
        match self {
            Self::Redis { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether the server may have carried out the request, because no reply arrived.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let kind = self.as_redis().map(RedisError::kind);
        matches!(kind, Some(ErrorKind::Io | ErrorKind::Parse))
    }

    /// What the server says about the holder, if its reply to EXTEND or RELEASE means that the lock is lost.
    pub(crate) fn lost(&self) -> Option<Lost> {
        match self {
            Self::Lost(lost) => Some(*lost),
            _ if self.has_code("WRONGTYPE") => Some(Lost::WrongType),
            _ => None,
        }
    }

    /// The first word of the server's error, if it is [`Error::Redis`].
    pub fn code(&self) -> Option<&str> {
        self.as_redis().and_then(RedisError::code)
    }

    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.code() == Some(code)
    }
}

fn is_transient(error: &RedisError) -> bool {
    use ErrorKind::{ClusterConnectionNotFound, Io, Parse};
    if matches!(error.kind(), Io | Parse | ClusterConnectionNotFound) {
        return true;
    }
    #[cfg(feature = "sentinel")]
    if matches!(
        error.kind(),
        ErrorKind::MasterNameNotFoundBySentinel | ErrorKind::NoValidReplicasFoundBySentinel
    ) {
        return true;
    }
    matches!(
        error.code(),
        Some("LOADING" | "READONLY" | "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN")
            | Some("NOREPLICAS" | "OOM" | "MISCONF" | "UNBLOCKED" | "BUSY" | "NOINBOX" | "BUSYINBOX")
    )
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
            "NOTHELD" => Self::Lost(Lost::NotHeld),
            "NOTOWNER" => Self::Lost(Lost::NotOwner),
            "STALE" => Self::Lost(Lost::Stale),
            "DEADLOCK" => Self::Deadlock(detail.to_owned()),
            "QUEUEFULL" => Self::QueueFull(detail.to_owned()),
            "GRACE" => Self::Grace(detail.to_owned()),
            "EVICTABLE" => Self::Evictable(detail.to_owned()),
            "ERR" if is_unknown_command(detail) => Self::ModuleMissing { server: None },
            _ => Self::Redis { server: None, error },
        }
    }
}

/// `unknown command 'DLOCK.ACQUIRE', with args beginning with: ...`; older servers quote it with backticks.
fn is_unknown_command(detail: &str) -> bool {
    let detail = detail.to_ascii_lowercase();
    let command = detail.strip_prefix("unknown command ");
    command.is_some_and(|command| command.trim_start_matches(['\'', '`', '"']).starts_with("dlock."))
}

/// The address of a server, before what it said.
struct Of<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|server| write!(f, "{server}: "))
    }
}

/// An error as the server sent it.
struct Text<'a>(&'a RedisError);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
            _ => error.fmt(f),
        }
    }
}

/// What the server said last, and for how long.
struct Said<'a>(&'a Option<Box<Error>>, Duration);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(None, _) => f.write_str(": others held it"),
            Self(Some(last), time) => write!(f, "; for the last {:?}: {last}", to_whole_ms(*time)),
        }
    }
}

/// Microseconds would only make the text longer.
fn to_whole_ms(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str, detail: &str) -> Error {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned())).into()
    }

    fn timeout(last: Option<Error>) -> Error {
        Error::Timeout {
            key: "door".into(),
            waited: Duration::from_micros(1_512_637),
            last: last.map(Box::new),
            last_for: Duration::from_micros(700_001),
        }
    }

    #[test]
    fn missing_module_is_recognized_and_error_says_how_to_load_it() {
        for quote in ['\'', '`'] {
            let error = answered(
                "ERR",
                &format!("unknown command {quote}DLOCK.ACQUIRE{quote}, with args"),
            );
            assert_eq!(error, Error::ModuleMissing { server: None });
            assert!(error.to_string().contains("loadmodule"));
        }
        assert!(matches!(
            answered("ERR", "unknown command 'NONSENSE'"),
            Error::Redis { .. }
        ));
    }

    #[test]
    fn server_error_is_displayed_with_its_server_as_it_was_sent() {
        let error = answered("NOAUTH", "Authentication required.").at(&"127.0.0.1:6379".into());
        assert_eq!(
            error.to_string(),
            "127.0.0.1:6379: NOAUTH Authentication required."
        );
        // Where the server is known, it stays.
        assert!(error.at(&"other".into()).to_string().starts_with("127.0.0.1"));
    }

    #[test]
    fn errors_are_lost_transient_or_final() {
        for (code, lost) in [
            ("NOTHELD", Lost::NotHeld),
            ("NOTOWNER", Lost::NotOwner),
            ("STALE", Lost::Stale),
        ] {
            let error = answered(code, "");
            assert!(error == Error::Lost(lost) && !error.is_transient(), "{code}");
        }
        for code in ["NOREPLICAS", "GRACE", "OOM", "MISCONF", "UNBLOCKED", "QUEUEFULL"] {
            assert!(answered(code, "").is_transient(), "{code}");
        }
        for code in ["ERR", "WRONGTYPE", "DEADLOCK", "EVICTABLE", "NOAUTH"] {
            assert!(!answered(code, "").is_transient(), "{code}");
        }
    }

    #[test]
    fn source_of_an_error_is_the_error_behind_it() {
        let behind = || Error::QueueFull("64".into());
        for error in [timeout(Some(behind())), Error::Unconfirmed(Box::new(behind()))] {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            assert_eq!(source, Some(behind().to_string()));
        }
    }

    #[test]
    fn timeout_says_in_whole_milliseconds_what_the_server_said_last_and_for_how_long() {
        assert_eq!(
            timeout(None).to_string(),
            "timed out after 1.512s waiting for door: others held it"
        );
        assert_eq!(
            timeout(Some(answered("OOM", "no memory"))).to_string(),
            "timed out after 1.512s waiting for door; for the last 700ms: OOM no memory"
        );
    }

    #[test]
    fn timeout_is_transient_if_the_server_was_unavailable() {
        assert!(timeout(Some(Error::no_response())).is_transient());
        assert!(!timeout(None).is_transient());
        assert!(!timeout(Some(answered("NOAUTH", ""))).is_transient());
    }
}
