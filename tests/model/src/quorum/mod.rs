//! A lock on a majority of three servers, with fences: see "A lock over several servers" in docs/design.md.
//!
//! ```text
//! server    one server as far as one lock goes. A test compares it with the core
//! setting   the circumstances, and which rule is left out on purpose
//! world     servers, clients, and everything that can happen to them; the guarantees
//! churn     liveness: who is served while a holder has lost the first server
//! queues    liveness of a rule that is not built: clients wait on all servers at once
//! ```

mod churn;
mod queues;
mod server;
mod setting;
mod world;

pub use churn::{Churn, ChurnBreach, Overtaken};
pub use queues::{QueueBreach, QueueSetting, Queues};
pub use server::Server;
pub use setting::{Breach, Setting};
pub use world::{Quorum, Violation};

/// The number of servers, and of a majority.
pub const SERVERS: usize = 3;
pub const MAJORITY: usize = 2;
