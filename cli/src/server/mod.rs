//! Connections to the servers that the command line names.

mod client_address;
mod from_args;
mod node;
mod target;

pub use node::{Fields, Node, is_command_denied, is_key_denied};
pub use target::{Discovered, Target};
