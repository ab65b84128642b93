//! The error of a command as its reply.

use dlock_core::engine::Error;

use crate::redis::{CommandError, Ctx, MissingArgument, NotRun};

impl CommandError for Error {
    fn reply(&self, ctx: &mut Ctx<'_>) {
        self.count(ctx);
        ctx.reply_error(&self.to_string());
    }
}

impl From<NotRun> for Error {
    fn from(reason: NotRun) -> Self {
        match reason {
            NotRun::NoReply => Self::NotRun,
            NotRun::NotInScripts => Self::NotGuarded(
                "commands that block, run other commands, or are about the connection or the server: \
                 send this one on its own",
            ),
        }
    }
}

impl From<MissingArgument> for Error {
    fn from(_: MissingArgument) -> Self {
        Self::Rejected(dlock_core::Error::internal(
            "a command has fewer arguments than its arity says",
        ))
    }
}
