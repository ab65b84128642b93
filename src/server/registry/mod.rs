//! Which locks there are, by the time at which somebody has to look at them.
//!
//! A lock has no Redis TTL: when its owner vanishes, the module must remove it. Every lock under a key
//! stands in the wheel of its database, in the bucket in which its first lease ends. An extended lock
//! stays where it is, and is put on when its bucket is due.
//!
//! The registry holds names, never pointers: FLUSHALL, DEBUG RELOAD and RENAME free or move values
//! without a word. A name may therefore be wrong; a lock that stands nowhere is a stray and is looked for.

mod bucket;
mod name;
mod place;
mod wheel;

pub mod strays;

use std::ffi::c_int;

pub use name::Name;
pub use place::Place;
use wheel::Wheel;

use crate::lock::Instant;

/// One wheel a database.
pub struct Registry {
    wheels: Vec<Wheel>,
}

/// A lock that somebody has to look at.
pub struct Due {
    pub db: c_int,
    pub name: Name,
    pub place: Place,
}

impl Registry {
    pub const fn new() -> Self {
        Self { wheels: Vec::new() }
    }

    /// The number of locks.
    pub fn len(&self) -> u64 {
        self.wheels.iter().map(Wheel::len).sum()
    }

    /// Has the lock looked at when `at` has passed; where it stands from now on.
    pub fn insert(&mut self, db: c_int, name: &[u8], at: Instant) -> Place {
        let index = usize::try_from(db).unwrap_or(0);
        if index >= self.wheels.len() {
            self.wheels.resize_with(index.saturating_add(1), Wheel::default);
        }
        self.wheels
            .get_mut(index)
            .map_or(Place::NOWHERE, |wheel| wheel.insert(name, at))
    }

    /// Forgets the lock, if it does stand there.
    pub fn remove(&mut self, db: c_int, name: &[u8], place: Place) {
        if let Some(wheel) = self.wheel_mut(db) {
            wheel.remove(name, place);
        }
    }

    /// Takes out a lock whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<Due> {
        self.wheels
            .iter_mut()
            .zip(0..)
            .find_map(|(wheel, db)| wheel.take_due(now).map(|(name, place)| Due { db, name, place }))
    }

    /// Whether [`Registry::take_due`] has something.
    pub fn is_due(&self, now: Instant) -> bool {
        self.wheels.iter().any(|wheel| wheel.is_due(now))
    }

    /// The database is emptied; -1 = all are.
    pub fn flush(&mut self, db: c_int) {
        if db < 0 {
            self.wheels.clear();
        } else if let Some(wheel) = self.wheel_mut(db) {
            *wheel = Wheel::default();
        }
    }

    pub fn swap(&mut self, first: c_int, second: c_int) {
        let (Ok(first), Ok(second)) = (usize::try_from(first), usize::try_from(second)) else {
            return;
        };
        let needed = first.max(second).saturating_add(1);
        if self.wheels.len() < needed {
            self.wheels.resize_with(needed, Wheel::default);
        }
        self.wheels.swap(first, second);
    }

    fn wheel_mut(&mut self, db: c_int) -> Option<&mut Wheel> {
        self.wheels.get_mut(usize::try_from(db).ok()?)
    }
}
