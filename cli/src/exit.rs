//! How the program ends.

use std::io;
use std::process::ExitCode;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use redis_dlock_client::Error;

/// The exit codes, those of sysexits.h where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Nothing there, or nothing done.
    Nothing = 1,
    /// EX_USAGE
    Usage = 64,
    /// EX_DATAERR
    NotALock = 65,
    /// EX_UNAVAILABLE
    Unavailable = 69,
    /// EX_OSERR
    System = 71,
    /// EX_IOERR
    Output = 74,
    /// EX_TEMPFAIL
    NotGot = 75,
    /// EX_NOPERM
    NotPermitted = 77,
    /// The number after the last one of sysexits.h.
    Lost = 79,
    CannotRun = 126,
    NotFound = 127,
}

/// Why the program ends early.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    /// What happened, and what to do; empty: nothing needs to be said.
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
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
            Error::Busy | Error::Timeout { .. } | Error::QueueFull(_) | Error::Grace(_) => Code::NotGot,
            Error::NotHeld | Error::NotOwner | Error::Stale | Error::Lost(_) => Code::Lost,
            Error::Invalid(_) => Code::Usage,
            Error::Redis(error) => return server_error(error),
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
    if error.kind() == ErrorKind::AuthenticationFailed {
        let message =
            format!("the server refuses the user or the password: {error}: see --user, -a and REDISCLI_AUTH");
        return Failure::new(Code::NotPermitted, message);
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
        let message = "this server is a replica, it grants no locks: name the primary, or the Sentinels";
        return Failure::new(Code::Unavailable, message);
    }
    match error.code() {
        Some("NOAUTH") => Failure::new(
            Code::NotPermitted,
            "the server wants a password: set REDISCLI_AUTH, or name one with -a or in the URL",
        ),
        Some("WRONGPASS") => Failure::new(
            Code::NotPermitted,
            "the server refuses the user or the password: see --user, -a and REDISCLI_AUTH",
        ),
        Some("NOPERM") => Failure::new(
            Code::NotPermitted,
            format!("this user may not do that: {error}: ask for the right (ACL SETUSER), or see --user"),
        ),
        Some("WRONGTYPE") => Failure::new(
            Code::NotALock,
            "the key of that name is not a lock: use another name, or delete the key",
        ),
        Some("ERR") => {
            let why = error.detail().unwrap_or("for no reason that it tells");
            Failure::new(Code::Usage, format!("the server refuses: {why}"))
        }
        _ if error.is_io_error() => Failure::new(
            Code::Unavailable,
            format!("the connection to the server is lost: {error}: is the server running?"),
        ),
        _ => Failure::new(Code::Unavailable, error.to_string()),
    }
}

/// Output that cannot be written. A reader that has gone, as `head` does, is no failure to speak of.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::BrokenPipe => String::new(),
            _ => format!("cannot write the output: {error}"),
        };
        Self::new(Code::Output, message)
    }
}
