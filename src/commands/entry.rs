//! What all commands have in common: from the server's call to ours, and the error if there is one.

use std::ffi::c_int;
use std::fmt;
use std::slice;

use redis_module::raw;

use crate::module::state;
use crate::module::stats::add;
use crate::redis::command_info::Metadata;
use crate::redis::ctx::{Ctx, Text};
use dlock_core::Error;

/// A command: what the server is told of it, and what it does.
pub trait Command {
    const METADATA: Metadata;

    /// Carries the command out and replies, or says why not; then nothing has changed.
    fn run(call: &Call<'_>) -> Result<(), Failure>;
}

/// A command as it was called.
pub struct Call<'a> {
    pub ctx: Ctx<'a>,
    argv: &'a [*mut raw::RedisModuleString],
}

/// Why a command failed.
pub enum Failure {
    Refused(Error),
    WrongType,
    /// A client writes to a replica that allows it.
    ReadOnly,
    /// A command that only primaries and logs may send.
    Internal,
}

impl<'a> Call<'a> {
    /// The argument at this position, 0 = the command's name. The server has checked the arity.
    pub fn text(&self, position: usize) -> Result<Text<'a>, Failure> {
        let raw = self
            .argv
            .get(position)
            .ok_or(Failure::Refused(Error::UnknownOption("")))?;
        // SAFETY: the server passes strings that live as long as the call.
        Ok(unsafe { Text::new(*raw) })
    }

    pub fn key(&self) -> Result<Text<'a>, Failure> {
        self.text(1)
    }

    /// The arguments behind the key.
    pub fn options(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.argv.iter().skip(2).map(|raw| {
            // SAFETY: the server passes strings that live as long as the call.
            unsafe { Text::new(*raw) }.bytes()
        })
    }
}

/// The function that the server calls for a command.
pub unsafe extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let argc = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the server passes a context and as many arguments as it says, valid during the call.
    let call = unsafe {
        Call {
            ctx: Ctx::new(ctx),
            argv: slice::from_raw_parts(argv, argc),
        }
    };
    if let Err(failure) = C::run(&call) {
        failure.reply(call.ctx);
    }
    raw::REDISMODULE_OK as c_int
}

impl Failure {
    pub fn reply(&self, ctx: Ctx<'_>) {
        self.count();
        ctx.reply_error(&self.to_string());
    }

    fn count(&self) {
        state::with(|state| match self {
            Self::Refused(refusal) => state.counters.refused(refusal),
            Self::WrongType => add(&mut state.counters.errors.wrongtype),
            Self::ReadOnly | Self::Internal => add(&mut state.counters.errors.err),
        });
    }
}

impl From<Error> for Failure {
    fn from(refusal: Error) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::WrongType => {
                f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Self::ReadOnly => {
                f.write_str("READONLY locks are granted and released by the primary, ask there")
            }
            Self::Internal => {
                f.write_str("ERR this command is for replication and the append-only file only")
            }
        }
    }
}
