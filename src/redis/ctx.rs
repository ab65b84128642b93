//! The context in which the server calls us, behind a safe face.

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::slice;

use redis_module::raw;

use crate::redis::api::required;
use dlock_core::{Instant, WallClock};

/// A context of the server, valid while it is calling us.
///
/// Whoever has one runs while the server does nothing else: it is also the proof that the module's state
/// may be touched.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    call: PhantomData<&'a ()>,
}

/// A string of the server, valid as long as its context.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: *mut raw::RedisModuleString,
    call: PhantomData<&'a ()>,
}

/// How things stand with the server and the client.
#[derive(Clone, Copy)]
pub struct Flags(u32);

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` is a context that the server gave us, and stays valid for `'a`, during which the server
    /// waits for us.
    pub unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self {
            raw,
            call: PhantomData,
        }
    }

    pub fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    pub fn flags(self) -> Flags {
        // SAFETY: the context is valid.
        let flags = unsafe { required(raw::RedisModule_GetContextFlags)(self.raw) };
        Flags(flags.cast_unsigned())
    }

    /// Whether nothing may be written now: clients are paused, for a failover for instance.
    pub fn is_paused(self) -> bool {
        // SAFETY: takes nothing, reads a flag of the server.
        unsafe { required(raw::RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    pub fn db(self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_GetSelectedDb)(self.raw) }
    }

    /// Whether there is such a database; it is then selected.
    pub fn select_db(self, db: c_int) -> bool {
        // SAFETY: the context is valid, a number out of range is answered with an error.
        unsafe { required(raw::RedisModule_SelectDb)(self.raw, db) == raw::REDISMODULE_OK as c_int }
    }

    /// Makes `f` a string of the server for the time of the call.
    pub fn with_text<R>(self, bytes: &[u8], f: impl FnOnce(Text<'_>) -> R) -> R {
        // SAFETY: the bytes are valid for their length and are copied.
        let raw =
            unsafe { required(raw::RedisModule_CreateString)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
        let result = f(Text {
            raw,
            call: PhantomData,
        });
        // SAFETY: made above, and `f` could not keep it.
        unsafe { required(raw::RedisModule_FreeString)(self.raw, raw) };
        result
    }

    /// Sends the command that is being carried out to replicas and the log, and counts a change since the
    /// last snapshot.
    pub fn replicate_verbatim(self) {
        // SAFETY: the context is one of a command.
        unsafe { required(raw::RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Sends `command key bytes` to replicas and the log.
    pub fn replicate(self, command: &CStr, key: Text<'_>, bytes: &[u8]) {
        // SAFETY: the arguments are what the format says: a string of the server, bytes and their length.
        unsafe {
            let replicate = required(raw::RedisModule_Replicate);
            replicate(
                self.raw,
                command.as_ptr(),
                c"sb".as_ptr(),
                key.raw,
                bytes.as_ptr(),
                bytes.len(),
            );
        }
    }

    /// Sends `command a b` to replicas and the log.
    pub fn replicate_numbers(self, command: &CStr, a: u64, b: u64) {
        // SAFETY: the arguments are what the format says: two long longs.
        unsafe {
            let replicate = required(raw::RedisModule_Replicate);
            replicate(
                self.raw,
                command.as_ptr(),
                c"ll".as_ptr(),
                a.cast_signed(),
                b.cast_signed(),
            );
        }
    }

    /// Whether a client could write to this key now; if not, the server's error.
    pub fn probe(self, key: Text<'_>) -> Result<(), String> {
        // SAFETY: the arguments are what the format says: as in a script, errors as replies, a string of
        // the server. The reply is freed here, and nothing of it is kept.
        unsafe {
            let call = required(raw::RedisModule_Call);
            let reply = call(self.raw, c"DLOCK.PROBE".as_ptr(), c"SEs".as_ptr(), key.raw);
            if reply.is_null() {
                return Err(String::new());
            }
            let mut len = 0;
            let text = required(raw::RedisModule_CallReplyStringPtr)(reply, &mut len);
            let is_error =
                required(raw::RedisModule_CallReplyType)(reply) == raw::REDISMODULE_REPLY_ERROR as c_int;
            let outcome = if !is_error {
                Ok(())
            } else if text.is_null() {
                Err(String::new())
            } else {
                Err(String::from_utf8_lossy(slice::from_raw_parts(text.cast(), len)).into_owned())
            };
            required(raw::RedisModule_FreeCallReply)(reply);
            outcome
        }
    }

    /// A number from the server's INFO, if there is such a field.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut error: c_int = 0;
        // SAFETY: the context is valid, the strings are C strings; the answer is freed at once.
        unsafe {
            let info = required(raw::RedisModule_GetServerInfo)(self.raw, section.as_ptr());
            let number =
                required(raw::RedisModule_ServerInfoGetFieldUnsigned)(info, field.as_ptr(), &mut error);
            required(raw::RedisModule_FreeServerInfo)(self.raw, info);
            (error == raw::REDISMODULE_OK as c_int).then_some(number)
        }
    }

    /// Tells clients that watch or track the key.
    pub fn signal_modified(self, key: Text<'_>) {
        // SAFETY: context and string are valid.
        unsafe { required(raw::RedisModule_SignalModifiedKey)(self.raw, key.raw) };
    }

    /// A keyspace event of the modules' class, `d`.
    pub fn notify(self, event: &CStr, key: Text<'_>) {
        let class = raw::REDISMODULE_NOTIFY_MODULE;
        // SAFETY: context and strings are valid; the server copies the name of the event.
        unsafe { required(raw::RedisModule_NotifyKeyspaceEvent)(self.raw, class, event.as_ptr(), key.raw) };
    }

    pub fn log_warning(self, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: the context is valid; the format takes one C string, and gets one.
        unsafe {
            required(raw::RedisModule_Log)(self.raw, c"warning".as_ptr(), c"%s".as_ptr(), message.as_ptr());
        }
    }
}

impl<'a> Text<'a> {
    /// # Safety
    /// `raw` is a string of the server that stays valid for `'a`.
    pub unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self {
            raw,
            call: PhantomData,
        }
    }

    pub fn raw(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string is valid for `'a`, and the server does not change it meanwhile.
        unsafe {
            let data = required(raw::RedisModule_StringPtrLen)(self.raw, &mut len);
            slice::from_raw_parts(data.cast(), len)
        }
    }
}

impl Flags {
    /// A primary that is not loading: here leases end by the clock.
    pub fn decides(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER) && !self.is_loading()
    }

    /// The command comes from the primary or from the log: it is carried out as told.
    pub fn is_told(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.is_loading()
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

    /// What is replicated goes into an append-only file.
    pub fn has_log(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    pub fn is_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    fn has(self, any_of: u32) -> bool {
        self.0 & any_of != 0
    }
}

/// The server's monotonic clock.
pub fn now() -> Instant {
    // SAFETY: takes nothing.
    let micros = unsafe { required(raw::RedisModule_MonotonicMicroseconds)() };
    Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// The wall clock. Only fences look at it.
pub fn wall_clock() -> WallClock {
    // SAFETY: takes nothing.
    let unix_ms = unsafe { required(raw::RedisModule_Milliseconds)() };
    WallClock::from_unix_ms(u64::try_from(unix_ms).unwrap_or(0))
}

/// The flags as seen from a callback that has no context.
pub fn flags_without_client() -> Flags {
    // SAFETY: the server takes a null context for "no client".
    let flags = unsafe { required(raw::RedisModule_GetContextFlags)(std::ptr::null_mut()) };
    Flags(flags.cast_unsigned())
}
