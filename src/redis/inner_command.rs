//! Commands of the caller that a command of the module runs, in one step with what it checked before.

use std::ffi::{CString, c_int};
use std::slice;

use redis_module::raw;

use crate::redis::api::api;
use crate::redis::call::Reply;
use crate::redis::ctx::Ctx;
use crate::redis::string::RStr;

/// A command among the arguments of another one.
pub struct InnerCommand<'a> {
    argv: &'a [*mut raw::RedisModuleString],
    name: &'a [u8],
}

/// What the commands of this module begin with.
const OWN_PREFIX: &[u8] = b"dlock.";

/// How Redis 7.0 begins an error that other servers begin with NOPERM.
const NO_PERMISSION: &str = "ERR acl verification failed";

impl<'a> InnerCommand<'a> {
    pub(super) fn at(argv: &'a [*mut raw::RedisModuleString], position: usize) -> Option<Self> {
        let argv = argv.get(position..)?;
        // SAFETY: the server passes strings that live as long as the call.
        let name = unsafe { RStr::new(*argv.first()?) }.bytes();
        Some(Self { argv, name })
    }

    pub fn is_one_of(&self, names: &[&str]) -> bool {
        names
            .iter()
            .any(|name| self.name.eq_ignore_ascii_case(name.as_bytes()))
    }

    pub fn is_of_this_module(&self) -> bool {
        let prefix = self.name.get(..OWN_PREFIX.len());
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN_PREFIX))
    }
}

impl Ctx<'_> {
    /// Runs a command as if the caller had sent it, and passes its reply on. The server rejects it where it would
    /// reject the caller's, and where it would reject a script's.
    pub fn run(&mut self, command: &InnerCommand<'_>) {
        let Ok(name) = CString::new(command.name) else {
            self.reply_error("ERR unknown command: no name has a zero byte, check the arguments");
            return;
        };
        let arguments = command.argv.get(1..).unwrap_or_default();
        // The arguments without the name (v), as in a script (S), as the caller (C), errors as replies (E), not where
        // memory is short (M), in the caller's protocol (0), to replicas and the log (!).
        let format = c"vSCEM0!";
        // SAFETY: the arguments are what the format says: an array of strings of the server, and its length.
        let reply = unsafe {
            (api().call)(
                self.raw(),
                name.as_ptr(),
                format.as_ptr(),
                arguments.as_ptr(),
                arguments.len(),
            )
        };
        let Some(reply) = Reply::new(reply) else {
            self.reply_error(
                "ERR the server did not run the command, send it without DLOCK.GUARD to see why",
            );
            return;
        };
        match reply.is_error().then(|| reply.text()).flatten() {
            Some(error) if error.starts_with(NO_PERMISSION) => {
                self.reply_error(&error.replacen("ERR", "NOPERM", 1));
            }
            _ => reply.forward(self),
        }
    }
}

/// The server calls a command that runs others not only to carry it out, but also to learn its keys.
pub(super) fn are_keys_requested(ctx: &Ctx<'_>) -> bool {
    // SAFETY: the context is valid.
    unsafe { (api().is_keys_position_request)(ctx.raw()) != 0 }
}

/// Reports the command's own key, and those of the command at `position` with their flags.
///
/// A command of this module there is not looked into: the server asks for keys before it calls the command, so that
/// commands nested a few thousand times would overflow its stack.
pub(super) fn report_keys(ctx: &Ctx<'_>, argv: &[*mut raw::RedisModuleString], position: usize) {
    let own = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
    report_key(ctx, 1, own.cast_signed());
    let inner = InnerCommand::at(argv, position).filter(|inner| !inner.is_of_this_module());
    for (index, flags) in inner.iter().flat_map(InnerCommand::keys) {
        // A channel has a slot as a key has, but no permissions of a key.
        if flags.cast_unsigned() & raw::REDISMODULE_CMD_KEY_NOT_KEY == 0 {
            report_key(ctx, index.saturating_add(position), flags);
        }
    }
}

fn report_key(ctx: &Ctx<'_>, position: usize, flags: c_int) {
    let position = c_int::try_from(position).unwrap_or(0);
    // SAFETY: the context is one of a request for keys; the server ignores position 0.
    unsafe { (api().key_at_pos_with_flags)(ctx.raw(), position, flags) };
}

impl InnerCommand<'_> {
    /// The positions of its keys, 0 = the command's name, and their flags. None if there is no such command.
    fn keys(&self) -> Vec<(usize, c_int)> {
        let argc = c_int::try_from(self.argv.len()).unwrap_or(0);
        let (mut count, mut flags) = (0, std::ptr::null_mut());
        // SAFETY: the server needs no context here, and only reads the strings. It allocates both arrays, of `count`
        // elements, or none of them; they are freed at once, and copied before.
        unsafe {
            let argv = self.argv.as_ptr().cast_mut();
            let positions =
                (api().get_command_keys_with_flags)(std::ptr::null_mut(), argv, argc, &mut count, &mut flags);
            if positions.is_null() || flags.is_null() {
                return Vec::new();
            }
            let len = usize::try_from(count).unwrap_or(0);
            let all = slice::from_raw_parts(positions, len).iter();
            let keys = all
                .zip(slice::from_raw_parts(flags, len))
                .filter_map(|(position, flags)| Some((usize::try_from(*position).ok()?, *flags)))
                .collect();
            (api().free)(positions.cast());
            (api().free)(flags.cast());
            keys
        }
    }
}
