//! Tells the server the metadata of a command.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::metadata::{Argument, KeyUse, Kind, Metadata};

const OK: c_int = raw::REDISMODULE_OK as c_int;
/// The version that brought the commands.
const SINCE: &CStr = c"0.1.0";

/// Redis 7.2 and later; before, a module's command is in no category.
pub(super) fn categorize(command: *mut raw::RedisModuleCommand, metadata: &Metadata) -> bool {
    // SAFETY: the server has set these pointers before it calls the module.
    let has_own = unsafe { raw::RedisModule_AddACLCategory }.is_some();
    // SAFETY: as above.
    let set = unsafe { raw::RedisModule_SetCommandACLCategories };
    let own = metadata.own_category.filter(|_| has_own).unwrap_or_default();
    let categories = CString::new(format!("{} {own}", metadata.categories).trim_end()).unwrap_or_default();
    // SAFETY: the command is one that was just made, the string is a C string.
    set.is_none_or(|set| unsafe { set(command, categories.as_ptr()) == OK })
}

pub(super) fn describe(command: *mut raw::RedisModuleCommand, metadata: &Metadata) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut key_specs = key_specs(metadata.key.as_ref());
    let mut subarguments = Vec::new();
    let mut arguments = arguments(metadata.arguments, &mut subarguments);
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: metadata.summary.as_ptr(),
        complexity: metadata.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: metadata.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: arguments.as_mut_ptr(),
    };
    // SAFETY: the command is one that was just made. All that `info` points to lives until the call
    // returns, and every array ends with a zeroed element; the server copies it.
    unsafe { api!(RedisModule_SetCommandInfo)(command, &info) == OK }
}

fn key_specs(key: Option<&KeyUse>) -> Vec<raw::RedisModuleCommandKeySpec> {
    let flags = match key {
        None => None,
        Some(KeyUse::Read) => Some(raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS),
        Some(KeyUse::Update | KeyUse::UpdateAll) => Some(
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE,
        ),
    };
    let mut specs = Vec::new();
    if let Some(flags) = flags {
        // SAFETY: plain data, for which zero is "nothing".
        let mut spec: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
        spec.flags = u64::from(flags);
        spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        spec.bs.index.pos = 1;
        if let Some(KeyUse::UpdateAll) = key {
            spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
            spec.fk.range.lastkey = -1;
            spec.fk.range.keystep = 1;
        }
        specs.push(spec);
    }
    // SAFETY: as above.
    specs.push(unsafe { std::mem::zeroed() });
    specs
}

/// The arguments for the server, ended by a zeroed one. `arena` keeps the arrays of inner arguments.
fn arguments(
    arguments: &[Argument],
    arena: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> Vec<raw::RedisModuleCommandArg> {
    let shown = arguments.iter().filter(|argument| (argument.is_shown)());
    let list = shown.map(|argument| raw_argument(argument, arena));
    let mut list: Vec<_> = list.collect();
    // SAFETY: plain data, for which zero is "nothing".
    list.push(unsafe { std::mem::zeroed() });
    list
}

fn raw_argument(
    argument: &Argument,
    arena: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> raw::RedisModuleCommandArg {
    // SAFETY: plain data, for which zero is "nothing".
    let mut raw: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };
    raw.name = argument.name.as_ptr();
    raw.token = argument.token.map_or(ptr::null(), CStr::as_ptr);
    let flag = |is_set, flag: u32| if is_set { flag.cast_signed() } else { 0 };
    raw.flags = flag(argument.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL)
        | flag(argument.multiple, raw::REDISMODULE_CMD_ARG_MULTIPLE);
    raw.key_spec_index = -1;
    raw.type_ = match argument.kind {
        Kind::Key => {
            raw.key_spec_index = 0;
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
        }
        Kind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        Kind::Flag => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        Kind::OneOf(inner) | Kind::Block(inner) => {
            let mut inner = arguments(inner, arena);
            raw.subargs = inner.as_mut_ptr();
            // Moving the vector leaves its elements where they are.
            arena.push(inner);
            if matches!(argument.kind, Kind::OneOf(_)) {
                raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF
            } else {
                raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK
            }
        }
    };
    raw
}
