//! The server's log. None of it calls the module back.

use std::ffi::{CStr, CString};

use crate::redis::ffi::api::{api, detached};

/// What an operator may ask about later.
pub fn notice(message: &str) {
    write(c"notice", message);
}

/// What an operator should act on.
pub fn warning(message: &str) {
    write(c"warning", message);
}

fn write(level: &CStr, message: &str) {
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the format takes one C string and gets one.
    unsafe { api!(RedisModule_Log)(detached(), level.as_ptr(), c"%s".as_ptr(), message.as_ptr()) };
}
