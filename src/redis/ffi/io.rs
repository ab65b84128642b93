//! Reading and writing values in RDB files, rewrites of the append-only file, and digests.

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::gil::{Gil, is_main_thread};
use crate::redis::ffi::string::RStr;

/// An RDB file, the payload of DUMP and RESTORE, or an AOF that is being rewritten. While one is loaded the server may
/// handle other clients: it is a [`Gil`] too.
pub struct Io<'a> {
    raw: *mut raw::RedisModuleIO,
    gil: Gil<'a>,
}

impl<'a> Deref for Io<'a> {
    type Target = Gil<'a>;

    fn deref(&self) -> &Gil<'a> {
        &self.gil
    }
}

impl<'a> DerefMut for Io<'a> {
    fn deref_mut(&mut self) -> &mut Gil<'a> {
        &mut self.gil
    }
}

impl<'a> Io<'a> {
    /// # Safety
    /// `raw` is valid during the callback. As for [`Gil::assume`].
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleIO) -> Self {
        Self {
            raw,
            // SAFETY: the caller vouches for it.
            gil: unsafe { Gil::assume() },
        }
    }

    /// `None` when they cannot be read.
    pub fn load_bytes(&mut self) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the file is valid.
        let data = unsafe { api!(RedisModule_LoadStringBuffer)(self.raw, &mut len) };
        if data.is_null() {
            return None;
        }
        // SAFETY: the server gave us a buffer of that length, which is freed once it is copied.
        unsafe {
            let bytes = slice::from_raw_parts(data.cast::<u8>(), len).to_vec();
            api!(RedisModule_Free)(data.cast());
            Some(bytes)
        }
    }

    /// `None` when they cannot be read.
    pub fn load_numbers<const N: usize>(&mut self) -> Option<[u64; N]> {
        // SAFETY: the file is valid. After an error every further number is 0.
        let numbers = [(); N].map(|()| unsafe { api!(RedisModule_LoadUnsigned)(self.raw) });
        // SAFETY: the file is valid.
        let failed = unsafe { api!(RedisModule_IsIOError)(self.raw) != 0 };
        (!failed).then_some(numbers)
    }

    pub fn save_numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            // SAFETY: the file is valid.
            unsafe { api!(RedisModule_SaveUnsigned)(self.raw, *number) };
        }
    }

    /// Writes `command key bytes` to an AOF.
    pub fn emit(&mut self, command: &CStr, key: RStr<'_>, bytes: &[u8]) {
        // SAFETY: the file is valid, the arguments are what the format says.
        unsafe {
            api!(RedisModule_EmitAOF)(
                self.raw,
                command.as_ptr(),
                c"sb".as_ptr(),
                key.raw(),
                bytes.as_ptr(),
                bytes.len(),
            );
        }
    }

    /// The database and the name of the key whose value is being loaded, if the server provides them.
    pub fn key(&self) -> Option<(c_int, RStr<'a>)> {
        // SAFETY: the file is valid, and so is the name.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromIO)(self.raw);
            let db = api!(RedisModule_GetDbIdFromIO)(self.raw);
            (!name.is_null()).then(|| (db, RStr::new(name.cast_mut())))
        }
    }

    /// Says why the file cannot be read.
    pub fn log_warning(&self, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: the file is valid, the format takes one C string and gets one.
        unsafe {
            api!(RedisModule_LogIOError)(self.raw, c"warning".as_ptr(), c"%s".as_ptr(), message.as_ptr());
        }
    }
}

/// What a value is saved to: an RDB file, or the payload of DUMP. Valkey 9.2 may write a snapshot on another thread.
pub struct Payload<'a> {
    raw: *mut raw::RedisModuleIO,
    gil: Option<Gil<'a>>,
}

impl<'a> Payload<'a> {
    /// # Safety
    /// `raw` is valid during the callback. As for [`Gil::assume`], if this is the main thread.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleIO) -> Self {
        Self {
            raw,
            // SAFETY: the caller vouches for it.
            gil: is_main_thread().then(|| unsafe { Gil::assume() }),
        }
    }

    /// `None`: the server works on meanwhile.
    pub fn gil(&mut self) -> Option<&mut Gil<'a>> {
        self.gil.as_mut()
    }

    pub fn save_bytes(&mut self, bytes: &[u8]) {
        // SAFETY: the file is valid, the bytes are valid for their length.
        unsafe { api!(RedisModule_SaveStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }
}

/// What DEBUG DIGEST makes of a value.
pub struct Digest<'a> {
    raw: *mut raw::RedisModuleDigest,
    call: PhantomData<&'a mut ()>,
}

impl Digest<'_> {
    /// # Safety
    /// `raw` is valid during the callback.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleDigest) -> Self {
        Self {
            raw,
            call: PhantomData,
        }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the digest is valid, the bytes are valid for their length.
        unsafe { api!(RedisModule_DigestAddStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }

    pub fn end_sequence(&mut self) {
        // SAFETY: the digest is valid.
        unsafe { api!(RedisModule_DigestEndSequence)(self.raw) };
    }
}
