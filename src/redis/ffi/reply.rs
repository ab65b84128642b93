//! Replies, written straight to the client.

use std::ffi::{CString, c_long, c_longlong};

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;

impl Ctx<'_> {
    pub fn reply_integer(&self, number: u64) {
        self.reply_signed(c_longlong::try_from(number).unwrap_or(c_longlong::MAX));
    }

    pub fn reply_signed(&self, number: c_longlong) {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.raw(), number) };
    }

    pub fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the bytes are valid for their length and are copied.
        unsafe { api!(RedisModule_ReplyWithStringBuffer)(self.raw(), bytes.as_ptr().cast(), bytes.len()) };
    }

    pub fn reply_null(&self) {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_ReplyWithNull)(self.raw()) };
    }

    pub fn reply_null_array(&self) {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_ReplyWithNullArray)(self.raw()) };
    }

    /// The next `len` replies are its elements.
    pub fn reply_array(&self, len: usize) {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_ReplyWithArray)(self.raw(), length(len)) };
    }

    /// The next `len` pairs of replies are its entries. In RESP2 a flat array.
    pub fn reply_map(&self, len: usize) {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_ReplyWithMap)(self.raw(), length(len)) };
    }

    pub fn reply_ok(&self) {
        // SAFETY: the text is a C string.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.raw(), c"OK".as_ptr()) };
    }

    pub fn reply_status(&self, text: &str) {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the text is a C string and is copied.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.raw(), text.as_ptr()) };
    }

    pub fn reply_error(&self, error: &str) {
        let error = CString::new(error).unwrap_or_default();
        // SAFETY: the text is a C string and is copied.
        unsafe { api!(RedisModule_ReplyWithError)(self.raw(), error.as_ptr()) };
    }
}

fn length(len: usize) -> c_long {
    c_long::try_from(len).unwrap_or(c_long::MAX)
}
