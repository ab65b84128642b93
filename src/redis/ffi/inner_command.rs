//! Commands of the caller that a command of the module runs, in one step with what it checked before.

use redis_module::raw;

use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::string::{RStr, RString};

/// A command among the arguments of another one.
pub struct InnerCommand<'a> {
    argv: &'a [*mut raw::RedisModuleString],
    name: RStr<'a>,
}

/// How the server rejects what scripts may not call.
const NOT_IN_SCRIPTS: &str = "is not allowed on script mode";

/// How Redis 7.0 begins an error that other servers begin with NOPERM.
const NO_PERMISSION: &str = "ERR acl verification failed";

/// Why the server has not run a command, where it gives no error for the caller.
pub enum NotRun {
    /// Its name holds a zero byte: there is no such command.
    NoReply,
    /// Scripts may not call it: it needs a client of its own, blocks, or runs other commands.
    NotInScripts,
}

impl<'a> InnerCommand<'a> {
    pub(super) fn at(argv: &'a [*mut raw::RedisModuleString], position: usize) -> Option<Self> {
        let argv = argv.get(position..)?;
        // SAFETY: the server passes strings that live as long as the call.
        let name = unsafe { RStr::new(*argv.first()?) };
        Some(Self { argv, name })
    }

    pub fn name(&self) -> &'a [u8] {
        self.name.bytes()
    }

    /// Its keys, as the server knows them: none if there is no such command, or if its arguments are wrong. A channel
    /// counts as none: it has a slot as a key has, but no permissions of a key.
    ///
    /// `None` if the server has no COMMAND GETKEYS, because it was renamed. RM_GetCommandKeys is always there, but does
    /// not free what it allocates for more than 256 keys, on Redis 8 for more than 6.
    pub fn keys(&self, ctx: &mut Ctx<'_>) -> Option<Vec<RString>> {
        // A name alone, which Redis 7.0 does not take.
        if self.argv.len() == 1 {
            return Some(Vec::new());
        }
        let subcommand = RString::new(b"GETKEYS");
        let arguments = [&[subcommand.borrow().raw()], self.argv].concat();
        let reply = ctx.call(c"COMMAND", c"v", &arguments)?;
        Some(reply.strings().unwrap_or_default())
    }
}

impl Ctx<'_> {
    /// Runs a command as if the caller had sent it, and passes its reply on. The server rejects it where it would
    /// reject the caller's. The error says if it has not run it at all.
    pub fn run(&mut self, command: &InnerCommand<'_>) -> Result<(), NotRun> {
        let arguments = command.argv.get(1..).unwrap_or_default();
        // As in a script (S), as the caller (C), errors as replies (E), not where memory is short (M), in the caller's
        // protocol (0), to replicas and the AOF (!).
        let call = |name| self.call(name, c"vSCEM0!", arguments);
        let Some(reply) = command.name.c_str().and_then(call) else {
            return Err(NotRun::NoReply);
        };
        match reply.is_error().then(|| reply.text()).flatten() {
            Some(error) if error.starts_with(NO_PERMISSION) => {
                self.reply_error(&error.replacen("ERR", "NOPERM", 1));
            }
            Some(error) if error.ends_with(NOT_IN_SCRIPTS) => return Err(NotRun::NotInScripts),
            _ => reply.forward(self),
        }
        Ok(())
    }
}
