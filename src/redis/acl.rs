//! What the user of a client may do.

use std::ffi::c_int;

use redis_module::raw;

use crate::redis::api::api;
use crate::redis::blocked_client::client_id;
use crate::redis::ctx::Ctx;
use crate::redis::string::RString;

/// The user of the client that runs a command. Another module's client has none: it may do everything.
pub struct CallingUser(Option<RString>);

impl CallingUser {
    pub fn of(ctx: &mut Ctx<'_>) -> Self {
        let id = client_id(ctx);
        // SAFETY: the context is valid. `GetCurrentUserName` would crash for a client without a user.
        let name = unsafe { (api().get_client_user_name_by_id)(ctx.raw(), id) };
        // SAFETY: the server gives the string away.
        Self((!name.is_null()).then(|| unsafe { RString::from_raw(name) }))
    }

    /// Whether the user may select this database and read this key there.
    pub fn may_read(&self, ctx: &mut Ctx<'_>, db: c_int, key: &[u8]) -> bool {
        let Some(name) = &self.0 else { return true };
        may_read_key(name, key) && (db == ctx.db() || may_select(ctx, name, db))
    }
}

fn may_read_key(user: &RString, key: &[u8]) -> bool {
    const READ: c_int = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
    let key = RString::new(key);
    // SAFETY: the strings are valid. The user is freed at once; null is one that was deleted.
    unsafe {
        let user = (api().get_module_user_from_user_name)(user.borrow().raw());
        if user.is_null() {
            return false;
        }
        let status = (api().acl_check_key_permissions)(user, key.borrow().raw(), READ);
        (api().free_module_user)(user);
        status == raw::REDISMODULE_OK as c_int
    }
}

/// Valkey 9.1 has rights to databases.
fn may_select(ctx: &mut Ctx<'_>, user: &RString, db: c_int) -> bool {
    let user = String::from_utf8_lossy(user.borrow().bytes());
    let reply = ctx.call_for_text(c"ACL", &["DRYRUN", &user, "SELECT", &db.to_string()]);
    reply.is_some_and(|reply| reply == "OK")
}
