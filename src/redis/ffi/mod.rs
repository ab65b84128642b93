//! The C API, and the callbacks that the server calls. All `unsafe` code of the module is in this directory.
//!
//! The callbacks are generic over what they call: [`Command`], [`DataType`], [`Blocked`], [`Events`], [`Receiver`],
//! [`InfoSection`]. They turn raw pointers into the types of this directory and add nothing.
//!
//! The crate `redis-module` is used for its bindings, its strings, its allocator and the macro that makes the module
//! loadable. Its other safe wrappers have no blocked clients with callbacks, panic if a function is
//! missing, take a message of the log for its format, and are compiled for one version of the server; one file of this
//! module loads on every server from Redis 7.0 to Valkey 9. So each function is looked up once, when the module is loaded
//! (`api`), and called by these files, or by the crate's strings.

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
mod filter;
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
mod user;

pub use blocked_client::{Blocked, BlockedClient, BlockedId, Token};
pub use bus::Receiver;
pub use command::{Command, CommandError, Invocation, MissingArgument};
pub use config::{Consistency, Number, Switch};
pub use ctx::{Ctx, Flags};
pub use data_type::{DataType, NativeType};
pub use events::{Events, SlotMigration};
pub use gil::{Gil, GilCell};
pub use info::InfoSection;
pub use inner_command::{InnerCommand, NotRun};
pub use io::{Digest, Io, Payload};
pub use key::{ReadKey, Value, WriteKey};
pub use load::attach;
pub use string::{RStr, RString};
pub use timer::Timer;
