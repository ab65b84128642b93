//! Failovers, restarts and grace periods: a model of the servers and owners of one lock.
//!
//! ```text
//! setting   what can happen, and which rule is left out on purpose
//! server    a server with one lock, which drives the core as the module does
//! world     servers, owners and time; the guarantees
//! ```

mod server;
mod setting;
mod world;

pub use setting::{Aof, Breach, Checked, OldPrimary, Setting};
pub use world::{Event, Failover, Violation};
