//! The functions of the module API, looked up once when the module is loaded.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

/// Lists the functions that every supported server has, for the lookup and as proof of it.
macro_rules! required {
    ($($function:ident,)*) => {
        /// A function can be called by [`api`] if it has a type here.
        #[allow(non_camel_case_types)]
        pub(super) mod looked_up {
            $(pub struct $function;)*
        }

        /// The first function that this server lacks.
        fn first_missing() -> Option<&'static str> {
            // SAFETY: the server has set these pointers before it calls the module, and changes them no more.
            unsafe {
                $(if { raw::$function }.is_none() {
                    return Some(stringify!($function));
                })*
            }
            None
        }
    };
}

required! {
    // Loading.
    RedisModule_SetModuleOptions, RedisModule_CreateCommand, RedisModule_GetCommand,
    RedisModule_SetCommandInfo, RedisModule_SubscribeToServerEvent, RedisModule_RegisterInfoFunc,
    RedisModule_RegisterNumericConfig, RedisModule_RegisterBoolConfig, RedisModule_LoadConfigs,
    RedisModule_GetDetachedThreadSafeContext, RedisModule_GetServerVersion, RedisModule_Log,
    // The context of a call.
    RedisModule_GetContextFlags, RedisModule_AvoidReplicaTraffic, RedisModule_GetSelectedDb,
    RedisModule_SelectDb, RedisModule_GetClientId, RedisModule_GetClientUserNameById,
    RedisModule_GetCurrentUserName,
    // Strings.
    RedisModule_StringPtrLen, RedisModule_Free, RedisModule_FreeString,
    // Keys.
    RedisModule_OpenKey, RedisModule_CloseKey, RedisModule_KeyType, RedisModule_DeleteKey,
    RedisModule_GetAbsExpire, RedisModule_SetExpire, RedisModule_ModuleTypeGetType,
    RedisModule_ModuleTypeGetValue, RedisModule_ModuleTypeSetValue,
    // Replies.
    RedisModule_ReplyWithArray, RedisModule_ReplyWithCallReply, RedisModule_ReplyWithError,
    RedisModule_ReplyWithLongLong, RedisModule_ReplyWithMap, RedisModule_ReplyWithNull,
    RedisModule_ReplyWithNullArray, RedisModule_ReplyWithSimpleString, RedisModule_ReplyWithStringBuffer,
    // Replication and notification.
    RedisModule_Replicate, RedisModule_ReplicateVerbatim, RedisModule_SignalModifiedKey,
    RedisModule_NotifyKeyspaceEvent,
    // The bus of a cluster.
    RedisModule_RegisterClusterMessageReceiver, RedisModule_SendClusterMessage,
    // Calls of other commands.
    RedisModule_Call, RedisModule_CallReplyProto, RedisModule_CallReplyType, RedisModule_CallReplyStringPtr,
    RedisModule_CallReplyLength, RedisModule_CallReplyArrayElement, RedisModule_FreeCallReply,
    // INFO: that of the server, and the module's section.
    RedisModule_GetServerInfo, RedisModule_ServerInfoGetFieldC, RedisModule_FreeServerInfo,
    RedisModule_InfoAddSection, RedisModule_InfoAddFieldCString,
    // Blocked clients.
    RedisModule_BlockClient, RedisModule_UnblockClient, RedisModule_SetDisconnectCallback,
    RedisModule_GetBlockedClientHandle, RedisModule_GetBlockedClientPrivateData,
    RedisModule_BlockedClientDisconnected,
    // Filters of commands.
    RedisModule_RegisterCommandFilter, RedisModule_UnregisterCommandFilter, RedisModule_CommandFilterArgGet,
    // Clocks and timers.
    RedisModule_MonotonicMicroseconds, RedisModule_Milliseconds, RedisModule_CreateTimer,
    RedisModule_StopTimer,
    // The data type: RDB, AOF, digests.
    RedisModule_GetKeyNameFromIO, RedisModule_GetDbIdFromIO, RedisModule_GetKeyNameFromOptCtx,
    RedisModule_GetDbIdFromOptCtx, RedisModule_LoadStringBuffer, RedisModule_SaveStringBuffer,
    RedisModule_LoadUnsigned, RedisModule_SaveUnsigned, RedisModule_IsIOError, RedisModule_LogIOError,
    RedisModule_EmitAOF, RedisModule_DigestAddStringBuffer, RedisModule_DigestEndSequence,
}

/// A function of the server.
macro_rules! api {
    ($function:ident) => {{
        let _ = $crate::redis::ffi::api::looked_up::$function;
        // It is one that `load` has found: where it has not, the module is not loaded, and the server has no command,
        // event, type or timer of it to call.
        redis_module::raw::$function.unwrap_unchecked()
    }};
}
pub(super) use api;

/// See [`detached`].
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// Looks up the functions. The error names one that this server lacks.
///
/// # Safety
/// Called once, before anything else of this module, with a valid context.
pub(super) unsafe fn load(ctx: *mut raw::RedisModuleCtx) -> Result<(), &'static str> {
    if let Some(missing) = first_missing() {
        return Err(missing);
    }
    // SAFETY: takes nothing but the context. The detached one lives as long as the module.
    let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) };
    DETACHED.store(detached, Ordering::Relaxed);
    Ok(())
}

/// A context that belongs to no client: for timers and logs, which need one where a callback has none.
pub(super) fn detached() -> *mut raw::RedisModuleCtx {
    DETACHED.load(Ordering::Relaxed)
}

/// `0x00MMmmpp`. Redict and Valkey 8 count on from Redis 7.2.
pub(super) fn server_version() -> c_int {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_GetServerVersion)() }
}
