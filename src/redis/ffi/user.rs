//! The ACL user of a caller.

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::string::RStr;

impl Ctx<'_> {
    /// The name of the user that runs the command; empty for another module that runs it as nobody.
    pub fn user(&mut self) -> Vec<u8> {
        // SAFETY: takes nothing but the context.
        let id = unsafe { api!(RedisModule_GetClientId)(self.raw()) };
        // SAFETY: a client that the server does not know, as that of a script, has no name.
        let name = unsafe { api!(RedisModule_GetClientUserNameById)(self.raw(), id) };
        if !name.is_null() {
            return self.take(name);
        }
        if !self.has_user() {
            return Vec::new();
        }
        // SAFETY: the client of the context has a user, whose name the server reads without a look.
        let name = unsafe { api!(RedisModule_GetCurrentUserName)(self.raw()) };
        self.take(name)
    }

    /// Whether the client of the context has a user: without one, the server would not even look at a command that is to
    /// run as the caller. ECHO without an argument is refused before the user's rights are, so that the ACL log stays.
    fn has_user(&mut self) -> bool {
        const NO_USER: &str = "cannot run as user";
        let refusal = self.call(c"ECHO", c"vCE", &[]).and_then(|reply| reply.text());
        refusal.is_some_and(|refusal| !refusal.contains(NO_USER))
    }

    /// The bytes of a string that the server has made for the module, which frees it.
    fn take(&mut self, string: *mut raw::RedisModuleString) -> Vec<u8> {
        if string.is_null() {
            return Vec::new();
        }
        // SAFETY: the string is valid until it is freed, once.
        unsafe {
            let bytes = RStr::new(string).bytes().to_vec();
            api!(RedisModule_FreeString)(self.raw(), string);
            bytes
        }
    }
}
