//! Strings of the server.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;
use std::slice;

use redis_module::{RedisString, raw};

use crate::redis::ffi::api::api;

/// A borrowed string, which its owner keeps alive for `'a`: the name of a key, an argument.
#[derive(Clone, Copy)]
pub struct RStr<'a> {
    raw: *mut raw::RedisModuleString,
    owner: PhantomData<&'a ()>,
}

/// A string of the server that this module made.
pub struct RString(RedisString);

impl<'a> RStr<'a> {
    /// # Safety
    /// `raw` is a string of the server that stays valid and unchanged for `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self {
            raw,
            owner: PhantomData,
        }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string is valid and unchanged for `'a`.
        unsafe {
            let data = api!(RedisModule_StringPtrLen)(self.raw, &mut len);
            slice::from_raw_parts(data.cast(), len)
        }
    }

    /// The same without a copy for functions that take C strings; `None` if there is a zero byte in it.
    pub fn c_str(self) -> Option<&'a CStr> {
        let bytes = self.bytes();
        // SAFETY: the server ends each of its strings with a zero byte, which is not part of the length.
        let text = unsafe { CStr::from_ptr(bytes.as_ptr().cast()) };
        (text.count_bytes() == bytes.len()).then_some(text)
    }
}

/// # Safety
/// The strings live and stay unchanged for `'a`.
pub(super) unsafe fn bytes_of_all<'a>(
    strings: &'a [*mut raw::RedisModuleString],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    // SAFETY: the caller vouches for the strings.
    strings.iter().map(|raw| unsafe { RStr::new(*raw) }.bytes())
}

impl RString {
    pub fn new(bytes: &[u8]) -> Self {
        Self(RedisString::create_from_slice(ptr::null_mut(), bytes))
    }

    /// Whoever takes it must free it.
    pub(super) fn into_raw(self) -> *mut raw::RedisModuleString {
        ManuallyDrop::new(self.0).inner
    }

    pub fn borrow(&self) -> RStr<'_> {
        // SAFETY: the string is freed when `self` is dropped, not before.
        unsafe { RStr::new(self.0.inner) }
    }
}
