//! The module API of Redis, made safe. It knows nothing of locks.
//!
//! What makes it safe:
//!
//! - [`Gil`] and [`Ctx`] exist only while the server waits for the module. Neither can be copied.
//! - [`GilCell`] lends its value to code that borrows one of them. Every function that can make the server call the
//!   module back borrows it mutably too, so the compiler rejects code in which a callback could find the value in use.
//! - [`WriteKey`] borrows its [`Ctx`], so there are never two references to one value.
//! - A [`BlockedClient`] is consumed by what unblocks it.

mod ffi;
mod metadata;
mod versions;

pub use ffi::*;
pub use metadata::{Argument, KeyUse, Metadata};
