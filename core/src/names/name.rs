//! The name of a lock: a database and a key.

use std::rc::Rc;

/// A borrowed lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockNameRef<'a> {
    /// The number of the database.
    pub db: i32,
    /// The key.
    pub key: &'a [u8],
}

/// An owned lock name, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    /// The number of the database.
    pub db: i32,
    /// The key.
    pub key: Rc<[u8]>,
}

impl<'a> LockNameRef<'a> {
    /// The lock under `key` in database `db`.
    pub fn new(db: i32, key: &'a [u8]) -> Self {
        Self { db, key }
    }

    /// An owned copy.
    pub fn to_name(self) -> LockName {
        LockName::new(self.db, self.key)
    }
}

impl LockName {
    /// The lock under `key` in database `db`.
    pub fn new(db: i32, key: &[u8]) -> Self {
        Self { db, key: key.into() }
    }

    /// Borrows the name.
    pub fn as_ref(&self) -> LockNameRef<'_> {
        LockNameRef::new(self.db, &self.key)
    }
}
