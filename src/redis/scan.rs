//! A walk through all databases, for locks that stand under a name that nobody told us.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::redis::api::required;
use crate::redis::ctx::{Ctx, Text};
use crate::redis::key::{Value, value_of};
use crate::txn::lease_moment;

pub struct Walk {
    db: c_int,
    cursor: Cursor,
}

struct Cursor(*mut raw::RedisModuleScanCursor);

impl Walk {
    pub fn begin() -> Self {
        Self {
            db: 0,
            cursor: Cursor::new(),
        }
    }

    /// Looks at a few keys, and gives the strays among them their place; false at the end of all databases.
    pub fn step(&mut self, ctx: Ctx<'_>) -> bool {
        if !ctx.select_db(self.db) {
            return false;
        }
        let mut db = self.db;
        // SAFETY: context and cursor are valid; the callback runs during the call only, and takes the
        // pointer for what it is.
        let more = unsafe {
            let data = (&raw mut db).cast::<c_void>();
            required(raw::RedisModule_Scan)(ctx.raw(), self.cursor.0, Some(look), data) != 0
        };
        if !more {
            *self = Self {
                db: self.db.saturating_add(1),
                cursor: Cursor::new(),
            };
        }
        true
    }
}

unsafe extern "C" fn look(
    _: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    db: *mut c_void,
) {
    // SAFETY: the server passes a name and an open key that are valid during the call, and our number.
    let (name, value, db) = unsafe { (Text::new(name), value_of(key), *db.cast::<c_int>()) };
    if let Value::Lock(stored) = value
        && stored.is_stray()
    {
        stored.keep_place(db, name.bytes(), &lease_moment());
    }
}

impl Cursor {
    fn new() -> Self {
        // SAFETY: takes nothing.
        Self(unsafe { required(raw::RedisModule_ScanCursorCreate)() })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe { required(raw::RedisModule_ScanCursorDestroy)(self.0) };
    }
}
