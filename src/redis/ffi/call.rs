//! Commands of the server that the module runs, and the server's INFO.

use std::ffi::{CStr, c_int};
use std::slice;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::string::{RStr, RString};

impl Ctx<'_> {
    /// Runs `command arguments`. `format`: that of RM_Call, `v` for the arguments and any flags. `None`: the server did not
    /// run it.
    pub(super) fn call(
        &mut self,
        command: &CStr,
        format: &CStr,
        arguments: &[*mut raw::RedisModuleString],
    ) -> Option<Reply> {
        let (format, array, len) = (format.as_ptr(), arguments.as_ptr(), arguments.len());
        // SAFETY: the arguments are what the format says: an array of strings of the server, and its length.
        let raw = unsafe { api!(RedisModule_Call)(self.raw(), command.as_ptr(), format, array, len) };
        // Not `then_some`, which makes a reply of null as well, and so frees it.
        (!raw.is_null()).then(|| Reply(raw))
    }

    /// Whether a client could write to these keys now; if not, the server's error. `probe` is a write command that does
    /// nothing, and whose arguments are keys.
    pub fn can_write(&mut self, probe: &CStr, keys: &[RStr<'_>]) -> Result<(), String> {
        let keys: Vec<_> = keys.iter().map(|key| key.raw()).collect();
        // As in a script, errors as replies.
        let reply = self.call(probe, c"vSE", &keys).ok_or_else(String::new)?;
        if reply.is_error() {
            return Err(reply.text().unwrap_or_default());
        }
        Ok(())
    }

    /// Whether the server would refuse a command that may grow memory: one with `deny-oom`, as `probe` must be.
    pub fn is_out_of_memory(&mut self, probe: &CStr) -> bool {
        // The first is cheap. It is also true while the server evicts, which stops no command.
        if !self.flags().is_out_of_memory() {
            return false;
        }
        // Not where memory is short (M), errors as replies (E).
        let reply = self.call(probe, c"vME", &[]);
        let error = reply.filter(Reply::is_error).and_then(|reply| reply.text());
        error.is_some_and(|error| error.trim_start_matches('-').starts_with("OOM "))
    }

    /// The text that `command arguments` replies.
    pub fn call_for_text(&mut self, command: &CStr, arguments: &[&str]) -> Option<String> {
        self.call_with_texts(command, arguments)?.text()
    }

    /// The array of texts that `command arguments` replies.
    pub fn call_for_texts(&mut self, command: &CStr, arguments: &[&str]) -> Option<Vec<String>> {
        let reply = self.call_with_texts(command, arguments)?;
        elements_of(reply.0)?.into_iter().map(text_of).collect()
    }

    fn call_with_texts(&mut self, command: &CStr, arguments: &[&str]) -> Option<Reply> {
        let strings = arguments.iter().map(|text| RString::new(text.as_bytes()));
        let strings: Vec<_> = strings.collect();
        let raw: Vec<_> = strings.iter().map(|string| string.borrow().raw()).collect();
        self.call(command, c"v", &raw).filter(|reply| !reply.is_error())
    }

    /// A number from the server's INFO, if there is such a field.
    pub fn info_number(&mut self, section: &CStr, field: &CStr) -> Option<u64> {
        self.info_text(section, field)?.parse().ok()
    }

    /// A text from the server's INFO, if there is such a field.
    pub fn info_text(&mut self, section: &CStr, field: &CStr) -> Option<String> {
        self.server_info(section).text(field)
    }

    /// A section of the server's INFO, which it shows to modules whatever the command is called.
    pub fn server_info(&mut self, section: &CStr) -> ServerInfo<'_> {
        // SAFETY: the section is a C string.
        let data = unsafe { api!(RedisModule_GetServerInfo)(self.raw(), section.as_ptr()) };
        ServerInfo { ctx: self, data }
    }
}

/// A section of INFO as it was, freed when dropped.
pub struct ServerInfo<'a> {
    ctx: &'a Ctx<'a>,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo<'_> {
    /// A field, if there is one of this name.
    pub fn text(&self, field: &CStr) -> Option<String> {
        // SAFETY: the name is a C string. The text belongs to the data, which lives longer than the copy takes.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC)(self.data, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

impl Drop for ServerInfo<'_> {
    fn drop(&mut self) {
        // SAFETY: the data comes from GetServerInfo, and is freed once.
        unsafe { api!(RedisModule_FreeServerInfo)(self.ctx.raw(), self.data) };
    }
}

/// A reply, freed when dropped.
pub(super) struct Reply(*mut raw::RedisModuleCallReply);

impl Reply {
    /// Looks at the first byte only: `-`, and `!` in RESP3. CallReplyType would parse the whole reply.
    pub(super) fn is_error(&self) -> bool {
        let mut len = 0;
        // SAFETY: the reply is valid, and so are the bytes of it, `len` of them.
        let first = unsafe {
            let bytes: *const u8 = api!(RedisModule_CallReplyProto)(self.0, &mut len).cast();
            (!bytes.is_null() && len > 0).then(|| *bytes)
        };
        matches!(first, Some(b'-' | b'!'))
    }

    pub(super) fn text(&self) -> Option<String> {
        text_of(self.0)
    }

    /// Passes it on to the client.
    pub(super) fn forward(&self, ctx: &Ctx<'_>) {
        // SAFETY: the reply is valid.
        unsafe { api!(RedisModule_ReplyWithCallReply)(ctx.raw(), self.0) };
    }

    /// The strings of an array.
    pub(super) fn strings(&self) -> Option<Vec<RString>> {
        let string = |element| Some(RString::new(&bytes_of(element)?));
        elements_of(self.0)?.into_iter().map(string).collect()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: made by a call, freed once. Nothing of it is kept.
        unsafe { api!(RedisModule_FreeCallReply)(self.0) };
    }
}

fn text_of(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    bytes_of(reply).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn bytes_of(reply: *mut raw::RedisModuleCallReply) -> Option<Vec<u8>> {
    let mut len = 0;
    // SAFETY: the reply is valid, or null, which has no text. The text is valid as long as the reply, and copied.
    unsafe {
        let text = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
        (!text.is_null()).then(|| slice::from_raw_parts(text.cast(), len).to_vec())
    }
}

/// The elements of an array, valid as long as the reply.
fn elements_of(reply: *mut raw::RedisModuleCallReply) -> Option<Vec<*mut raw::RedisModuleCallReply>> {
    // SAFETY: the reply is valid.
    unsafe {
        let is_array = api!(RedisModule_CallReplyType)(reply) == raw::REDISMODULE_REPLY_ARRAY as c_int;
        is_array.then(|| {
            (0..api!(RedisModule_CallReplyLength)(reply))
                .map(|index| api!(RedisModule_CallReplyArrayElement)(reply, index))
                .collect()
        })
    }
}
