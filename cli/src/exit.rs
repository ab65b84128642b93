//! Exit codes, and errors that end the program.

use std::io;
use std::process::ExitCode;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use redis_dlock_client::Error;
use redis_dlock_quorum::Error as QuorumError;

use crate::output::eprint_error;
use crate::text::display_name;

/// Exit codes, from sysexits.h where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// No such lock, or nothing was changed.
    NoEffect = 1,
    /// EX_USAGE
    Usage = 64,
    /// EX_DATAERR
    NotALock = 65,
    /// EX_UNAVAILABLE
    Unavailable = 69,
    /// EX_OSERR
    OsError = 71,
    /// EX_IOERR
    IoError = 74,
    /// EX_TEMPFAIL
    NotAcquired = 75,
    /// EX_NOPERM
    NotPermitted = 77,
    /// One more than the last code of sysexits.h.
    LockLost = 79,
    CommandNotExecutable = 126,
    CommandNotFound = 127,
}

/// An error that ends the program.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: Code,
    /// What happened and what to do. Empty if there is nothing to print.
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The same failure, with the name of the lock in front.
    pub fn about(self, lock: &[u8]) -> Self {
        Self {
            code: self.code,
            message: format!("{}: {}", display_name(lock), self.message),
        }
    }

    /// The operating system does not do something.
    pub fn os(action: &str, error: &io::Error) -> Self {
        Self::new(Code::OsError, format!("cannot {action}: {error}"))
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }
}

/// The exit code of a command that skipped unreachable servers, which it prints.
pub fn report_unreachable(failures: &[Failure]) -> ExitCode {
    for failure in failures {
        eprint_error(&failure.message);
    }
    match failures.first() {
        Some(failure) => failure.code.into(),
        None => ExitCode::SUCCESS,
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Timeout { .. } | Error::QueueFull(_) | Error::Grace(_) => Code::NotAcquired,
            Error::Lost(_) => Code::LockLost,
            Error::Invalid(_) => Code::Usage,
            Error::Redis { error, .. } => return server_error(error),
            _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<QuorumError> for Failure {
    fn from(error: QuorumError) -> Self {
        let code = match &error {
            QuorumError::Timeout { .. } => Code::NotAcquired,
            QuorumError::Lost(_) => Code::LockLost,
            QuorumError::Invalid(_) => Code::Usage,
            _ => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Error::from(error).into()
    }
}

fn server_error(error: &RedisError) -> Failure {
    const CHECK: &str = "check --user, -a and REDISCLI_AUTH";
    let is_replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
    let (code, message) = match error.code() {
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            let rejected = "the server rejected the user name or password";
            (Code::NotPermitted, format!("{rejected}: {error}: {CHECK}"))
        }
        _ if is_replica => {
            let message =
                "this server is a replica and cannot grant locks: connect to the primary or the Sentinels";
            (Code::Unavailable, message.to_owned())
        }
        Some("NOAUTH") => {
            let message =
                "the server requires a password: set REDISCLI_AUTH, or pass it with -a or in the URL";
            (Code::NotPermitted, message.to_owned())
        }
        Some("WRONGPASS") => {
            let message = format!("the server rejected the user name or password: {CHECK}");
            (Code::NotPermitted, message)
        }
        Some("NOPERM") => {
            let remedy = "grant the permission with ACL SETUSER, or connect as another user (--user)";
            let reason = error.detail().unwrap_or("no reason given");
            let message = format!("permission denied: NOPERM {reason}: {remedy}");
            (Code::NotPermitted, message)
        }
        Some("WRONGTYPE") => {
            let message = "the key exists but is not a lock: use another name";
            (Code::NotALock, message.to_owned())
        }
        Some("ERR") => {
            let reason = error.detail().unwrap_or("no reason given");
            (Code::Usage, format!("the server rejected the request: {reason}"))
        }
        _ if error.is_io_error() => {
            let message = format!("lost the connection to the server: {error}: is the server running?");
            (Code::Unavailable, message)
        }
        _ => (Code::Unavailable, error.to_string()),
    };
    Failure::new(code, message)
}

/// Output that cannot be written. A closed pipe, as with `| head`, is not worth a message.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::BrokenPipe => String::new(),
            _ => format!("cannot write output: {error}"),
        };
        Self::new(Code::IoError, message)
    }
}
