//! A scan of all databases for values of one type, a few keys at a time.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::redis::api::api;
use crate::redis::ctx::Ctx;
use crate::redis::data_type::DataType;
use crate::redis::gil::Gil;
use crate::redis::key::{Value, value_of};
use crate::redis::string::RStr;

pub struct KeyspaceScan {
    db: c_int,
    cursor: Cursor,
}

/// What is done with each value that is found.
pub type Visit<T> = fn(&mut Gil<'_>, db: c_int, name: RStr<'_>, value: &T);

impl KeyspaceScan {
    pub fn begin() -> Self {
        Self {
            db: 0,
            cursor: Cursor::new(),
        }
    }

    /// Visits the values among the next few keys; false at the end of the last database.
    pub fn visit_some<T: DataType>(&mut self, ctx: &mut Ctx<'_>, visit: Visit<T>) -> bool {
        if !ctx.select_db(self.db) {
            return false;
        }
        let mut visitor = Visitor { db: self.db, visit };
        // SAFETY: context and cursor are valid; the callback runs during the call only, and takes the pointer for
        // what it is.
        let more = unsafe {
            let visitor = (&raw mut visitor).cast::<c_void>();
            (api().scan)(ctx.raw(), self.cursor.0, Some(visited::<T>), visitor) != 0
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

struct Visitor<T> {
    db: c_int,
    visit: Visit<T>,
}

unsafe extern "C" fn visited<T: DataType>(
    _: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    visitor: *mut c_void,
) {
    // SAFETY: the server passes a name and an open key that are valid during the call, and our visitor.
    let (name, value, visitor) = unsafe {
        (
            RStr::new(name),
            value_of::<T>(key),
            &*visitor.cast::<Visitor<T>>(),
        )
    };
    if let Value::Ours(value) = value {
        // SAFETY: the value is valid during the call, in which nothing changes it: a `Gil` changes no key.
        let (value, mut gil) = unsafe { (&*value, Gil::assume()) };
        (visitor.visit)(&mut gil, visitor.db, name, value);
    }
}

struct Cursor(*mut raw::RedisModuleScanCursor);

impl Cursor {
    fn new() -> Self {
        // SAFETY: takes nothing.
        Self(unsafe { (api().scan_cursor_create)() })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe { (api().scan_cursor_destroy)(self.0) };
    }
}
