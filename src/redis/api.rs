//! The functions of the module API, looked up once when the module is loaded.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulonglong, c_void};
use std::mem::MaybeUninit;

use redis_module::raw::{
    self, RedisModuleBlockedClient as BlockedClient, RedisModuleCallReply as CallReply,
    RedisModuleClusterMessageReceiver as ClusterMessageReceiver, RedisModuleCmdFunc as CmdFunc,
    RedisModuleCommand as Command, RedisModuleCommandInfo as CommandInfo,
    RedisModuleConfigApplyFunc as Apply, RedisModuleConfigGetBoolFunc as GetBool,
    RedisModuleConfigGetNumericFunc as GetNumber, RedisModuleConfigSetBoolFunc as SetBool,
    RedisModuleConfigSetNumericFunc as SetNumber, RedisModuleCtx as Ctx, RedisModuleDigest as Digest,
    RedisModuleDisconnectFunc as DisconnectFunc, RedisModuleEvent as Event,
    RedisModuleEventCallback as EventCallback, RedisModuleIO as Io, RedisModuleInfoCtx as InfoCtx,
    RedisModuleInfoFunc as InfoFunc, RedisModuleKey as Key, RedisModuleKeyOptCtx as KeyOptCtx,
    RedisModuleServerInfoData as ServerInfo, RedisModuleString as Str, RedisModuleTimerID as TimerId,
    RedisModuleTimerProc as TimerFunc, RedisModuleType as Type, mstime_t,
};

/// Lists each function with its type once: for the table and for the lookup.
macro_rules! functions {
    (
        required { $($field:ident = $function:ident: $type:ty;)* }
        optional { $($(#[$doc:meta])* $optional:ident = $optional_function:ident: $optional_type:ty;)* }
    ) => {
        /// The functions of the server that this module calls.
        pub struct Api {
            $(pub $field: $type,)*
            $($(#[$doc])* pub $optional: Option<$optional_type>,)*
        }

        impl Api {
            /// Looks up every function. The error names the first that this server lacks.
            fn look_up() -> Result<Self, &'static str> {
                // SAFETY: the server has set these pointers before it calls the module, and changes them no more.
                unsafe {
                    Ok(Self {
                        $($field: raw::$function.ok_or(stringify!($function))?,)*
                        $($optional: raw::$optional_function,)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
    // Loading.
    set_module_options = RedisModule_SetModuleOptions: unsafe extern "C" fn(*mut Ctx, c_int);
    create_command = RedisModule_CreateCommand:
        unsafe extern "C" fn(*mut Ctx, *const c_char, CmdFunc, *const c_char, c_int, c_int, c_int) -> c_int;
    get_command = RedisModule_GetCommand: unsafe extern "C" fn(*mut Ctx, *const c_char) -> *mut Command;
    set_command_info = RedisModule_SetCommandInfo:
        unsafe extern "C" fn(*mut Command, *const CommandInfo) -> c_int;
    subscribe_to_server_event = RedisModule_SubscribeToServerEvent:
        unsafe extern "C" fn(*mut Ctx, Event, EventCallback) -> c_int;
    register_info_func = RedisModule_RegisterInfoFunc: unsafe extern "C" fn(*mut Ctx, InfoFunc) -> c_int;
    register_numeric_config = RedisModule_RegisterNumericConfig:
        unsafe extern "C" fn(*mut Ctx, *const c_char, c_longlong, c_uint, c_longlong, c_longlong,
            GetNumber, SetNumber, Apply, *mut c_void) -> c_int;
    register_bool_config = RedisModule_RegisterBoolConfig:
        unsafe extern "C" fn(*mut Ctx, *const c_char, c_int, c_uint, GetBool, SetBool, Apply,
            *mut c_void) -> c_int;
    load_configs = RedisModule_LoadConfigs: unsafe extern "C" fn(*mut Ctx) -> c_int;
    get_detached_thread_safe_context = RedisModule_GetDetachedThreadSafeContext:
        unsafe extern "C" fn(*mut Ctx) -> *mut Ctx;
    get_server_version = RedisModule_GetServerVersion: unsafe extern "C" fn() -> c_int;
    log = RedisModule_Log: unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...);

    // The context of a call.
    get_context_flags = RedisModule_GetContextFlags: unsafe extern "C" fn(*mut Ctx) -> c_int;
    avoid_replica_traffic = RedisModule_AvoidReplicaTraffic: unsafe extern "C" fn() -> c_int;
    get_selected_db = RedisModule_GetSelectedDb: unsafe extern "C" fn(*mut Ctx) -> c_int;
    select_db = RedisModule_SelectDb: unsafe extern "C" fn(*mut Ctx, c_int) -> c_int;

    // Strings.
    create_string = RedisModule_CreateString:
        unsafe extern "C" fn(*mut Ctx, *const c_char, usize) -> *mut Str;
    free_string = RedisModule_FreeString: unsafe extern "C" fn(*mut Ctx, *mut Str);
    string_ptr_len = RedisModule_StringPtrLen: unsafe extern "C" fn(*const Str, *mut usize) -> *const c_char;
    free = RedisModule_Free: unsafe extern "C" fn(*mut c_void);

    // Keys.
    open_key = RedisModule_OpenKey: unsafe extern "C" fn(*mut Ctx, *mut Str, c_int) -> *mut Key;
    close_key = RedisModule_CloseKey: unsafe extern "C" fn(*mut Key);
    key_type = RedisModule_KeyType: unsafe extern "C" fn(*mut Key) -> c_int;
    delete_key = RedisModule_DeleteKey: unsafe extern "C" fn(*mut Key) -> c_int;
    get_abs_expire = RedisModule_GetAbsExpire: unsafe extern "C" fn(*mut Key) -> mstime_t;
    set_expire = RedisModule_SetExpire: unsafe extern "C" fn(*mut Key, mstime_t) -> c_int;
    module_type_get_type = RedisModule_ModuleTypeGetType: unsafe extern "C" fn(*mut Key) -> *mut Type;
    module_type_get_value = RedisModule_ModuleTypeGetValue: unsafe extern "C" fn(*mut Key) -> *mut c_void;
    module_type_set_value = RedisModule_ModuleTypeSetValue:
        unsafe extern "C" fn(*mut Key, *mut Type, *mut c_void) -> c_int;

    // Replies.
    reply_with_array = RedisModule_ReplyWithArray: unsafe extern "C" fn(*mut Ctx, c_long) -> c_int;
    reply_with_call_reply = RedisModule_ReplyWithCallReply:
        unsafe extern "C" fn(*mut Ctx, *mut CallReply) -> c_int;
    reply_with_error = RedisModule_ReplyWithError: unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int;
    reply_with_longlong = RedisModule_ReplyWithLongLong: unsafe extern "C" fn(*mut Ctx, c_longlong) -> c_int;
    reply_with_map = RedisModule_ReplyWithMap: unsafe extern "C" fn(*mut Ctx, c_long) -> c_int;
    reply_with_null = RedisModule_ReplyWithNull: unsafe extern "C" fn(*mut Ctx) -> c_int;
    reply_with_null_array = RedisModule_ReplyWithNullArray: unsafe extern "C" fn(*mut Ctx) -> c_int;
    reply_with_simple_string = RedisModule_ReplyWithSimpleString:
        unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int;
    reply_with_string_buffer = RedisModule_ReplyWithStringBuffer:
        unsafe extern "C" fn(*mut Ctx, *const c_char, usize) -> c_int;

    // Replication and notification.
    replicate = RedisModule_Replicate:
        unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...) -> c_int;
    replicate_verbatim = RedisModule_ReplicateVerbatim: unsafe extern "C" fn(*mut Ctx) -> c_int;
    signal_modified_key = RedisModule_SignalModifiedKey: unsafe extern "C" fn(*mut Ctx, *mut Str) -> c_int;
    notify_keyspace_event = RedisModule_NotifyKeyspaceEvent:
        unsafe extern "C" fn(*mut Ctx, c_int, *const c_char, *mut Str) -> c_int;

    // The bus of a cluster.
    register_cluster_message_receiver = RedisModule_RegisterClusterMessageReceiver:
        unsafe extern "C" fn(*mut Ctx, u8, ClusterMessageReceiver);
    send_cluster_message = RedisModule_SendClusterMessage:
        unsafe extern "C" fn(*mut Ctx, *const c_char, u8, *const c_char, u32) -> c_int;

    // Calls of other commands.
    call = RedisModule_Call:
        unsafe extern "C" fn(*mut Ctx, *const c_char, *const c_char, ...) -> *mut CallReply;
    call_reply_proto = RedisModule_CallReplyProto:
        unsafe extern "C" fn(*mut CallReply, *mut usize) -> *const c_char;
    call_reply_type = RedisModule_CallReplyType: unsafe extern "C" fn(*mut CallReply) -> c_int;
    call_reply_string_ptr = RedisModule_CallReplyStringPtr:
        unsafe extern "C" fn(*mut CallReply, *mut usize) -> *const c_char;
    call_reply_length = RedisModule_CallReplyLength: unsafe extern "C" fn(*mut CallReply) -> usize;
    call_reply_array_element = RedisModule_CallReplyArrayElement:
        unsafe extern "C" fn(*mut CallReply, usize) -> *mut CallReply;
    free_call_reply = RedisModule_FreeCallReply: unsafe extern "C" fn(*mut CallReply);

    // The server's INFO and the module's section.
    get_server_info = RedisModule_GetServerInfo:
        unsafe extern "C" fn(*mut Ctx, *const c_char) -> *mut ServerInfo;
    server_info_get_field_unsigned = RedisModule_ServerInfoGetFieldUnsigned:
        unsafe extern "C" fn(*mut ServerInfo, *const c_char, *mut c_int) -> c_ulonglong;
    server_info_get_field_c = RedisModule_ServerInfoGetFieldC:
        unsafe extern "C" fn(*mut ServerInfo, *const c_char) -> *const c_char;
    free_server_info = RedisModule_FreeServerInfo: unsafe extern "C" fn(*mut Ctx, *mut ServerInfo);
    info_add_section = RedisModule_InfoAddSection: unsafe extern "C" fn(*mut InfoCtx, *const c_char) -> c_int;
    info_add_field_ulonglong = RedisModule_InfoAddFieldULongLong:
        unsafe extern "C" fn(*mut InfoCtx, *const c_char, c_ulonglong) -> c_int;
    info_add_field_cstring = RedisModule_InfoAddFieldCString:
        unsafe extern "C" fn(*mut InfoCtx, *const c_char, *const c_char) -> c_int;

    // Blocked clients.
    block_client = RedisModule_BlockClient:
        unsafe extern "C" fn(*mut Ctx, CmdFunc, CmdFunc, Option<unsafe extern "C" fn(*mut Ctx,
            *mut c_void)>, c_longlong) -> *mut BlockedClient;
    unblock_client = RedisModule_UnblockClient:
        unsafe extern "C" fn(*mut BlockedClient, *mut c_void) -> c_int;
    set_disconnect_callback = RedisModule_SetDisconnectCallback:
        unsafe extern "C" fn(*mut BlockedClient, DisconnectFunc);
    get_blocked_client_handle = RedisModule_GetBlockedClientHandle:
        unsafe extern "C" fn(*mut Ctx) -> *mut BlockedClient;
    get_blocked_client_private_data = RedisModule_GetBlockedClientPrivateData:
        unsafe extern "C" fn(*mut Ctx) -> *mut c_void;
    blocked_client_disconnected = RedisModule_BlockedClientDisconnected:
        unsafe extern "C" fn(*mut Ctx) -> c_int;

    // Clocks and timers.
    monotonic_microseconds = RedisModule_MonotonicMicroseconds: unsafe extern "C" fn() -> u64;
    milliseconds = RedisModule_Milliseconds: unsafe extern "C" fn() -> mstime_t;
    create_timer = RedisModule_CreateTimer:
        unsafe extern "C" fn(*mut Ctx, mstime_t, TimerFunc, *mut c_void) -> TimerId;
    stop_timer = RedisModule_StopTimer: unsafe extern "C" fn(*mut Ctx, TimerId, *mut *mut c_void) -> c_int;

    // The data type: RDB, AOF, digests.
    get_key_name_from_io = RedisModule_GetKeyNameFromIO: unsafe extern "C" fn(*mut Io) -> *const Str;
    get_db_id_from_io = RedisModule_GetDbIdFromIO: unsafe extern "C" fn(*mut Io) -> c_int;
    get_key_name_from_opt_ctx = RedisModule_GetKeyNameFromOptCtx:
        unsafe extern "C" fn(*mut KeyOptCtx) -> *const Str;
    get_db_id_from_opt_ctx = RedisModule_GetDbIdFromOptCtx: unsafe extern "C" fn(*mut KeyOptCtx) -> c_int;
    load_string_buffer = RedisModule_LoadStringBuffer:
        unsafe extern "C" fn(*mut Io, *mut usize) -> *mut c_char;
    save_string_buffer = RedisModule_SaveStringBuffer: unsafe extern "C" fn(*mut Io, *const c_char, usize);
    load_unsigned = RedisModule_LoadUnsigned: unsafe extern "C" fn(*mut Io) -> u64;
    save_unsigned = RedisModule_SaveUnsigned: unsafe extern "C" fn(*mut Io, u64);
    is_io_error = RedisModule_IsIOError: unsafe extern "C" fn(*mut Io) -> c_int;
    log_io_error = RedisModule_LogIOError: unsafe extern "C" fn(*mut Io, *const c_char, *const c_char, ...);
    emit_aof = RedisModule_EmitAOF: unsafe extern "C" fn(*mut Io, *const c_char, *const c_char, ...);
    digest_add_string_buffer = RedisModule_DigestAddStringBuffer:
        unsafe extern "C" fn(*mut Digest, *const c_char, usize);
    digest_end_sequence = RedisModule_DigestEndSequence: unsafe extern "C" fn(*mut Digest);
    }
    optional {
    /// Redis 7.4, Redict, Valkey 8.
    add_acl_category = RedisModule_AddACLCategory: unsafe extern "C" fn(*mut Ctx, *const c_char) -> c_int;
    /// Redis 7.2 and later.
    set_command_acl_categories = RedisModule_SetCommandACLCategories:
        unsafe extern "C" fn(*mut Command, *const c_char) -> c_int;
    }
}

struct Table(UnsafeCell<MaybeUninit<Loaded>>);

struct Loaded {
    api: Api,
    detached: *mut Ctx,
}

// SAFETY: written once, by `load`, before the server calls anything else of the module on any thread.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(MaybeUninit::uninit()));

/// Fills the table. The error names a function that this server lacks.
///
/// # Safety
/// Called once, before anything else of this module, with a valid context.
pub(super) unsafe fn load(ctx: *mut Ctx) -> Result<(), &'static str> {
    let api = Api::look_up()?;
    // SAFETY: the context is valid, and nothing reads the table yet. The detached context lives as long as the module.
    unsafe {
        let detached = (api.get_detached_thread_safe_context)(ctx);
        (*TABLE.0.get()).write(Loaded { api, detached });
    }
    Ok(())
}

/// The functions of the server.
#[inline]
pub(super) fn api() -> &'static Api {
    &loaded().api
}

/// A context that belongs to no client: for timers and logs, which need one where a callback has none.
pub(super) fn detached() -> *mut Ctx {
    loaded().detached
}

/// `0x00MMmmpp`. Redict and Valkey 8 count on from Redis 7.2.
pub(super) fn server_version() -> c_int {
    // SAFETY: takes nothing.
    unsafe { (api().get_server_version)() }
}

#[inline]
fn loaded() -> &'static Loaded {
    // SAFETY: nothing in this module runs before `load` has filled the table. Where `load` fails the module is not
    // loaded, and the server has no command, event, type or timer of it to call.
    unsafe { (*TABLE.0.get()).assume_init_ref() }
}
