//! The keys of a command among the arguments of another one.
//!
//! A server learns them by calling the outer command with a request for keys: the flag `getkeys-api`. Newer servers do
//! so on their I/O threads, beside the main thread, and corrupt themselves: Valkey 8.0 to 9.1 in a cluster abort under
//! load. There the flag is not set, the server knows the outer command's own key only, and what depends on the others
//! is left to the module. No other way than these calls touches anything of the module on an I/O thread.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::{ptr, slice};

use redis_module::raw;

use crate::redis::api::{api, detached, server_version};
use crate::redis::call::Reply;
use crate::redis::ctx::Ctx;
use crate::redis::inner_command::InnerCommand;
use crate::redis::string::RStr;

/// The server knows the keys. Set at load, as the next one.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Up to how many keys RM_GetCommandKeysWithFlags is used. It is fast, but does not know the flags of most commands, and
/// does not free what it allocates for more keys than its own buffer takes.
static MOST_KEYS_BY_API: AtomicUsize = AtomicUsize::new(0);

const REDIS_8_0: c_int = 0x0008_0000;
/// Asks for the keys of every command, before it knows whether it needs them.
const VALKEY_9: c_int = 0x0009_0000;
/// The first version of Redis in which I/O threads look for keys.
const REDIS_8_2: c_int = 0x0008_0200;

/// Whether this server asks for keys on its main thread only, and only when it needs them.
pub(super) fn may_report(ctx: &mut Ctx<'_>) -> bool {
    let is_valkey = ctx.info_text(c"server", c"valkey_version").is_some();
    let is_cluster = ctx.flags().is_cluster();
    let (is_reported, most_keys) = match server_version() {
        version if is_valkey => (!is_cluster && version < VALKEY_9, 256),
        version if version < REDIS_8_0 => (true, 256),
        version => (version < REDIS_8_2, 6),
    };
    REPORTED.store(is_reported, Relaxed);
    // In a cluster every request looks for keys; elsewhere those of users whose permissions depend on the flags.
    MOST_KEYS_BY_API.store(if is_cluster { most_keys } else { 0 }, Relaxed);
    is_reported
}

/// Answers a request for keys: the command's own key, and those of the command at `position` with their flags. False if
/// the server calls the command to have it carried out.
///
/// A command of this module there is not looked into: the server asks for keys before it calls the command, so that
/// commands nested a few thousand times would overflow its stack.
///
/// # Safety
/// The server is calling the command with this context and these arguments.
pub(super) unsafe fn report_if_asked(
    ctx: *mut raw::RedisModuleCtx,
    argv: &[*mut raw::RedisModuleString],
    position: usize,
) -> bool {
    // SAFETY: the context is valid; the server ignores a position of 0.
    let report = |index: usize, flags: c_uint| unsafe {
        let index = c_int::try_from(index).unwrap_or(0);
        (api().key_at_pos_with_flags)(ctx, index, flags.cast_signed());
    };
    // SAFETY: the context is valid.
    if unsafe { (api().is_keys_position_request)(ctx) == 0 } {
        return false;
    }
    report(1, raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS);
    let inner = InnerCommand::at(argv, position).filter(|inner| !inner.is_of_this_module());
    for key in inner.iter().flat_map(InnerCommand::key_positions) {
        report(key.index.saturating_add(position), key.flags);
    }
    true
}

/// A key among the arguments of a command.
struct KeyPosition {
    /// 0 = the command's name.
    index: usize,
    flags: c_uint,
}

impl<'a> InnerCommand<'a> {
    /// The server does not know its keys: see the top of this file.
    pub fn has_unreported_keys(&self) -> bool {
        !REPORTED.load(Relaxed)
    }

    /// None if there is no such command, or if its arguments are wrong.
    pub fn keys(&self, _: &mut Ctx<'_>) -> Vec<RStr<'a>> {
        let positions = self.key_positions().into_iter();
        let keys = positions.filter_map(|key| self.argv.get(key.index));
        // SAFETY: the arguments live as long as the call.
        keys.map(|raw| unsafe { RStr::new(*raw) }).collect()
    }

    /// A channel counts as none: it has a slot as a key has, but no permissions of a key.
    fn key_positions(&self) -> Vec<KeyPosition> {
        let most_keys = self.argv.len().saturating_sub(1);
        let mut keys = if most_keys <= MOST_KEYS_BY_API.load(Relaxed) {
            self.key_positions_by_api()
        } else {
            self.key_positions_by_command().unwrap_or_default()
        };
        keys.retain(|key| key.flags & raw::REDISMODULE_CMD_KEY_NOT_KEY == 0);
        keys
    }

    fn key_positions_by_api(&self) -> Vec<KeyPosition> {
        let argc = c_int::try_from(self.argv.len()).unwrap_or(0);
        let (mut count, mut flags) = (0, ptr::null_mut());
        // SAFETY: the server needs no context here, and only reads the strings. It allocates both arrays, of `count`
        // elements, or none of them; they are copied, and freed at once.
        unsafe {
            let argv = self.argv.as_ptr().cast_mut();
            let indices =
                (api().get_command_keys_with_flags)(ptr::null_mut(), argv, argc, &mut count, &mut flags);
            if indices.is_null() || flags.is_null() {
                return Vec::new();
            }
            let len = usize::try_from(count).unwrap_or(0);
            let both = slice::from_raw_parts(indices, len)
                .iter()
                .zip(slice::from_raw_parts(flags, len));
            let keys = both.map(|(index, flags)| KeyPosition {
                index: usize::try_from(*index).unwrap_or(usize::MAX),
                flags: flags.cast_unsigned(),
            });
            let keys = keys.collect();
            (api().free)(indices.cast());
            (api().free)(flags.cast());
            keys
        }
    }

    /// What COMMAND GETKEYSANDFLAGS replies. It names keys, in the order of the arguments.
    fn key_positions_by_command(&self) -> Option<Vec<KeyPosition>> {
        // SAFETY: the arguments are what the format says: a C string, an array of strings of the server, its length.
        // The detached context lives as long as the module, and the caller runs on the main thread.
        let reply = Reply::new(unsafe {
            (api().call)(
                detached(),
                c"COMMAND".as_ptr(),
                c"cv".as_ptr(),
                c"GETKEYSANDFLAGS".as_ptr(),
                self.argv.as_ptr(),
                self.argv.len(),
            )
        })?;
        let mut next = 1;
        let find = |(name, flags): (Vec<u8>, Vec<Vec<u8>>)| {
            let is_key = |index: &usize| {
                let argument = self.argv.get(*index);
                // SAFETY: the arguments live as long as the call.
                argument.is_some_and(|raw| unsafe { RStr::new(*raw) }.bytes() == name)
            };
            let index = (next..self.argv.len()).chain(1..next).find(is_key)?;
            next = index.saturating_add(1);
            let flags = flags
                .iter()
                .map(|flag| flag_of(flag))
                .fold(0, |all, flag| all | flag);
            Some(KeyPosition { index, flags })
        };
        Some(reply.keys_and_flags().into_iter().filter_map(find).collect())
    }
}

/// A flag of a key by its name in COMMAND GETKEYSANDFLAGS.
fn flag_of(name: &[u8]) -> c_uint {
    match name {
        b"RO" => raw::REDISMODULE_CMD_KEY_RO,
        b"RW" => raw::REDISMODULE_CMD_KEY_RW,
        b"OW" => raw::REDISMODULE_CMD_KEY_OW,
        b"RM" => raw::REDISMODULE_CMD_KEY_RM,
        b"access" => raw::REDISMODULE_CMD_KEY_ACCESS,
        b"update" => raw::REDISMODULE_CMD_KEY_UPDATE,
        b"insert" => raw::REDISMODULE_CMD_KEY_INSERT,
        b"delete" => raw::REDISMODULE_CMD_KEY_DELETE,
        b"not_key" => raw::REDISMODULE_CMD_KEY_NOT_KEY,
        _ => 0,
    }
}
