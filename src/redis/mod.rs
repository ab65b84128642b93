//! The module API of Redis, made safe. All `unsafe` code of the module is in this directory, which knows nothing of locks.
//!
//! What makes it safe:
//!
//! - [`Gil`] and [`Ctx`] exist only while the server waits for the module. Neither can be copied.
//! - [`GilCell`] lends its value to code that borrows one of them. Every function that can make the server call the
//!   module back borrows it mutably too, so the compiler rejects code in which a callback could find the value in use.
//! - [`WriteKey`] borrows its [`Ctx`], so there are never two references to one value.
//! - A [`BlockedClient`] is consumed by what unblocks it.
//! - The callbacks are functions of this directory, generic over what they call: [`Command`], [`DataType`], [`Blocked`],
//!   [`Events`], [`Receiver`], [`InfoSection`]. They turn raw pointers into the types above and add nothing.
//!
//! The crate `redis-module` is used for its bindings, its allocator and the macro that makes the module loadable. Its
//! safe interface has no blocked clients with callbacks, panics if a function is missing, and is compiled for one
//! version of the server; one file of this module loads on every server from Redis 7.0 to Valkey 9. So each function is
//! looked up once, when the module is loaded (`api`), and only these files call it.

#![allow(unsafe_code)]

mod api;
mod blocked_client;
mod bus;
mod call;
pub mod clock;
mod command;
mod command_info;
mod config;
mod ctx;
mod data_type;
mod events;
mod gil;
mod info;
mod inner_command;
mod io;
mod key;
mod load;
pub mod log;
mod reply;
mod string;
mod timer;

pub use blocked_client::{Blocked, BlockedClient, BlockedId};
pub use bus::Receiver;
pub use command::{Call, Command, CommandError, MissingArgument};
pub use command_info::{Argument, KeyUse, Metadata};
pub use config::{Number, Switch};
pub use ctx::{Ctx, Flags};
pub use data_type::{DataType, NativeType};
pub use events::{Events, SlotMigration};
pub use gil::{Gil, GilCell};
pub use info::InfoSection;
pub use inner_command::InnerCommand;
pub use io::{Digest, Io};
pub use key::{ReadKey, Value, WriteKey};
pub use load::attach;
pub use string::{RStr, RString};
pub use timer::Timer;
