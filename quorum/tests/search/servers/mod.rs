//! A server of a quorum, as far as one lock goes. A test compares it with the core.

mod server;
mod setting;

pub use server::Server;
pub use setting::{Breach, Fence, Setting};

/// The number of servers.
pub const SERVERS: usize = 3;
