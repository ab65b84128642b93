//! The servers, as the command line names them.

mod node;
mod place;
mod slots;
mod target;

pub use node::{Fields, Node, is_forbidden, is_hidden};
pub use target::Target;
