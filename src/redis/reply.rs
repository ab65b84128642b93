//! Replies, written straight to the client.

use std::ffi::{CString, c_long, c_longlong};

use redis_module::raw;

use crate::redis::api::required;
use crate::redis::ctx::Ctx;

impl Ctx<'_> {
    pub fn reply_integer(self, number: u64) {
        self.reply_signed(c_longlong::try_from(number).unwrap_or(c_longlong::MAX));
    }

    pub fn reply_signed(self, number: c_longlong) {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_ReplyWithLongLong)(self.raw(), number) };
    }

    pub fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the context is valid, the bytes are valid for their length and are copied.
        unsafe {
            required(raw::RedisModule_ReplyWithStringBuffer)(self.raw(), bytes.as_ptr().cast(), bytes.len())
        };
    }

    pub fn reply_null(self) {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_ReplyWithNull)(self.raw()) };
    }

    pub fn reply_null_array(self) {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_ReplyWithNullArray)(self.raw()) };
    }

    /// So many replies follow.
    pub fn reply_array(self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_ReplyWithArray)(self.raw(), length(len)) };
    }

    /// So many pairs of replies follow. In RESP2 a flat array.
    pub fn reply_map(self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { required(raw::RedisModule_ReplyWithMap)(self.raw(), length(len)) };
    }

    pub fn reply_ok(self) {
        // SAFETY: the context is valid, the text is a C string.
        unsafe { required(raw::RedisModule_ReplyWithSimpleString)(self.raw(), c"OK".as_ptr()) };
    }

    pub fn reply_error(self, error: &str) {
        let error = CString::new(error).unwrap_or_default();
        // SAFETY: the context is valid, the text is a C string and is copied.
        unsafe { required(raw::RedisModule_ReplyWithError)(self.raw(), error.as_ptr()) };
    }
}

fn length(len: usize) -> c_long {
    c_long::try_from(len).unwrap_or(c_long::MAX)
}
