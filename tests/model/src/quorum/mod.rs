//! A lock on a majority of three servers, with fences: see "A lock over several servers" in docs/design.md.
//!
//! ```text
//! server    one server as far as one lock goes. A test compares it with the core
//! setting   the circumstances, and which rule is left out on purpose
//! world     servers, clients, and everything that can happen to them; the guarantees
//! queues    liveness: who is served, in which order, and whether everybody is
//! ```

mod queues;
mod server;
mod setting;
mod world;

pub use queues::{QueueBreach, QueueSetting, QueueViolation, Queues};
pub use server::{GRACE, Server};
pub use setting::{Breach, Fence, Setting};
pub use world::{Quorum, Violation};

/// The number of servers, and of a majority.
pub const SERVERS: usize = 3;
pub const MAJORITY: usize = 2;
