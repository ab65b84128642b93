//! The context in which the server calls the module.
//!
//! A method takes `&mut self` if the server may call the module back before it returns, or writes to the stream of
//! replication. With `&self` it does neither.

use std::ffi::{CStr, c_int};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::gil::Gil;
use crate::redis::ffi::string::RStr;
use crate::redis::versions::SLOT_IMPORT_CLIENT;

/// A context of the server, which is valid for `'a`: while it is calling the module. The `SAFETY` comments of this
/// directory do not repeat that. It is a [`Gil`] too.
pub struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    gil: Gil<'a>,
}

impl<'a> Deref for Ctx<'a> {
    type Target = Gil<'a>;

    fn deref(&self) -> &Gil<'a> {
        &self.gil
    }
}

impl<'a> DerefMut for Ctx<'a> {
    fn deref_mut(&mut self) -> &mut Gil<'a> {
        &mut self.gil
    }
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` is a context that the server gave the module, and stays valid for `'a`. As for [`Gil::assume`].
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self {
            raw,
            // SAFETY: the caller vouches for it.
            gil: unsafe { Gil::assume() },
        }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    pub fn flags(&self) -> Flags {
        // SAFETY: takes nothing but the context.
        Flags(unsafe { api!(RedisModule_GetContextFlags)(self.raw) }.cast_unsigned())
    }

    /// Whether nothing may be written now: clients are paused, for a failover for instance.
    pub fn is_paused(&self) -> bool {
        // SAFETY: takes nothing, reads a flag of the server.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    pub fn db(&self) -> c_int {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_GetSelectedDb)(self.raw) }
    }

    /// Selects a database; false if there is none of this number.
    #[must_use]
    pub fn select_db(&mut self, db: c_int) -> bool {
        // SAFETY: a number out of range is answered with an error.
        unsafe { api!(RedisModule_SelectDb)(self.raw, db) == raw::REDISMODULE_OK as c_int }
    }

    /// Sends the running command to replicas and the AOF, and counts a change since the last snapshot.
    pub fn replicate_verbatim(&mut self) {
        // SAFETY: the context is one of a command.
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Sends `command key bytes` to replicas and the AOF.
    pub fn replicate(&mut self, command: &CStr, key: RStr<'_>, bytes: &[u8]) {
        // SAFETY: the arguments are what the format says: a string of the server, bytes and their length.
        unsafe {
            api!(RedisModule_Replicate)(
                self.raw,
                command.as_ptr(),
                c"sb".as_ptr(),
                key.raw(),
                bytes.as_ptr(),
                bytes.len(),
            );
        }
    }

    /// Sends `command a b [keyword]` to replicas, and to the AOF if `is_logged`.
    pub fn replicate_numbers(
        &mut self,
        command: &CStr,
        numbers: [u64; 2],
        keyword: Option<&CStr>,
        is_logged: bool,
    ) {
        let [a, b] = numbers.map(u64::cast_signed);
        let (command, keyword) = (command.as_ptr(), keyword.map(CStr::as_ptr));
        let format = match (keyword, is_logged) {
            (None, true) => c"ll",
            (None, false) => c"llA",
            (Some(_), true) => c"llc",
            (Some(_), false) => c"llcA",
        };
        let keyword = keyword.unwrap_or(ptr::null());
        // SAFETY: the arguments are what the format says: two long longs, and a C string where it has a third one.
        unsafe { api!(RedisModule_Replicate)(self.raw, command, format.as_ptr(), a, b, keyword) };
    }

    /// Asks replicas to acknowledge what they have, at once. Not in the AOF.
    pub fn request_acknowledgements(&mut self) {
        let (getack, any) = (c"GETACK".as_ptr(), c"*".as_ptr());
        // SAFETY: the arguments are what the format says: two C strings.
        unsafe { api!(RedisModule_Replicate)(self.raw, c"REPLCONF".as_ptr(), c"ccA".as_ptr(), getack, any) };
    }

    /// Invalidates the key for clients that watch or track it.
    pub fn signal_modified(&mut self, key: RStr<'_>) {
        // SAFETY: the string is valid.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.raw, key.raw()) };
    }

    /// Sends a keyspace event of the modules' class, `d`. Other modules may run commands when they get it.
    pub fn notify(&mut self, event: &CStr, key: RStr<'_>) {
        let class = raw::REDISMODULE_NOTIFY_MODULE;
        // SAFETY: the strings are valid; the server copies the name of the event.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent)(self.raw, class, event.as_ptr(), key.raw()) };
    }
}

/// Whether the server migrates slots atomically.
static IMPORTS_SLOTS: AtomicBool = AtomicBool::new(false);

/// From now on changes of locks are taken from nodes that migrate slots to this one. Only for Valkey 9 and later.
pub(super) fn accept_slot_imports() {
    IMPORTS_SLOTS.store(true, Ordering::Relaxed);
}

/// Whether they are.
pub(super) fn imports_slots() -> bool {
    IMPORTS_SLOTS.load(Ordering::Relaxed)
}

/// The state of the server and of the client of a call.
#[derive(Clone, Copy)]
pub struct Flags(u32);

impl Flags {
    /// For a callback without a context.
    pub fn without_client(_: &Gil<'_>) -> Self {
        // SAFETY: the server takes a null context for "no client".
        Self(unsafe { api!(RedisModule_GetContextFlags)(std::ptr::null_mut()) }.cast_unsigned())
    }

    /// A primary that is not loading: here leases expire by the clock.
    pub fn is_active_primary(self) -> bool {
        self.is_primary() && !self.is_loading()
    }

    /// The command comes from the primary or from the AOF: it is executed as it is. The server says the same of a source of
    /// slots.
    pub fn must_obey(self) -> bool {
        let is_replicated = self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) && !self.is_slot_import();
        is_replicated || self.is_loading()
    }

    /// The command comes from a node that migrates slots to this one, or from a client that poses as one.
    pub fn is_slot_import(self) -> bool {
        IMPORTS_SLOTS.load(Ordering::Relaxed) && self.has(SLOT_IMPORT_CLIENT)
    }

    pub fn is_primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }

    /// In MULTI, scripts and functions nothing can block.
    pub fn can_block(self) -> bool {
        !self.has(
            raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
                | raw::REDISMODULE_CTX_FLAGS_MULTI
                | raw::REDISMODULE_CTX_FLAGS_LUA,
        )
    }

    /// More memory is in use than `maxmemory` allows.
    pub fn is_out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// What is replicated goes into an append-only file.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    pub fn is_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    fn has(self, any_of: u32) -> bool {
        self.0 & any_of != 0
    }
}
