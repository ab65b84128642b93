//! The servers, as the command line names them.

mod node;
mod place;
mod slots;
mod target;

pub use node::{Fields, Node};
pub use target::Target;
