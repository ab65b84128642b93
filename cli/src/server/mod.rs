//! Connections to the servers that the command line names.

mod client;
mod endpoints;
mod from_args;
mod node;
mod slots;
mod target;

pub use client::LockServer;
pub use node::{Fields, Node, is_command_denied, is_key_denied};
pub use target::Target;
