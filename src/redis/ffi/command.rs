//! Commands: from the server's call to the module's, and their registration.

use std::ffi::{CString, c_int};
use std::slice;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::command_info::{categorize, describe};
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::inner_command::InnerCommand;
use crate::redis::ffi::string::{RStr, bytes_of_all};
use crate::redis::metadata::{KeyUse, Metadata};

/// A command: its metadata and its handler.
pub trait Command {
    const METADATA: Metadata;
    type Error: CommandError;

    /// Carries the command out and replies, or says why not.
    fn run(call: &mut Invocation<'_>) -> Result<(), Self::Error>;
}

/// The reply in place of the one that a command would have given.
pub trait CommandError {
    fn reply(&self, ctx: &mut Ctx<'_>);
}

/// Fewer arguments than the command's arity promises.
pub struct MissingArgument;

/// A command as it was called.
pub struct Invocation<'a> {
    pub ctx: Ctx<'a>,
    argv: &'a [*mut raw::RedisModuleString],
}

impl<'a> Invocation<'a> {
    /// The argument at this position, 0 = the command's name. The server has checked the arity.
    pub fn arg(&self, position: usize) -> Result<RStr<'a>, MissingArgument> {
        let raw = self.argv.get(position);
        // SAFETY: the server passes strings that live as long as the call.
        raw.map(|raw| unsafe { RStr::new(*raw) }).ok_or(MissingArgument)
    }

    /// The arguments after the key.
    pub fn options(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // SAFETY: the server passes strings that live as long as the call.
        unsafe { bytes_of_all(self.argv.get(2..).unwrap_or_default()) }
    }

    /// The command that begins at this argument, if there is one.
    pub fn inner_command(&self, position: usize) -> Option<InnerCommand<'a>> {
        InnerCommand::at(self.argv, position)
    }
}

impl Ctx<'_> {
    /// False if the server refuses the command.
    pub fn register_command<C: Command>(&mut self) -> bool {
        let metadata = &C::METADATA;
        let (first_key, last_key, step) = match metadata.key {
            None => (0, 0, 0),
            Some(KeyUse::UpdateAll) => (1, -1, 1),
            Some(_) => (1, 1, 1),
        };
        // SAFETY: the strings are C strings, the server copies them.
        let command = unsafe {
            let status = api!(RedisModule_CreateCommand)(
                self.raw(),
                metadata.name.as_ptr(),
                Some(entry::<C>),
                metadata.flags.as_ptr(),
                first_key,
                last_key,
                step,
            );
            if status != OK {
                return false;
            }
            api!(RedisModule_GetCommand)(self.raw(), metadata.name.as_ptr())
        };
        !command.is_null() && describe(command, metadata) && categorize(command, metadata)
    }

    /// Redis 7.4, Redict and Valkey 8 have ACL categories of modules; older servers go without.
    pub fn register_acl_category(&mut self, name: &str) -> bool {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the server has set the pointer before it calls the module.
        let add = unsafe { raw::RedisModule_AddACLCategory };
        // SAFETY: the string is a C string.
        add.is_none_or(|add| unsafe { add(self.raw(), name.as_ptr()) == OK })
    }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The function that the server calls for a command.
unsafe extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let argc = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the server passes as many arguments as it says, valid during the call.
    let argv = unsafe { slice::from_raw_parts(argv, argc) };
    // SAFETY: the server passes a context that is valid during the call.
    let ctx = unsafe { Ctx::new(ctx) };
    let mut call = Invocation { ctx, argv };
    if let Err(error) = C::run(&mut call) {
        error.reply(&mut call.ctx);
    }
    OK
}
