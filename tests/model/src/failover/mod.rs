//! Failovers, restarts and graces: servers and owners of one lock, in a world that a search can try.
//!
//! ```text
//! setting   what can happen, and which rule is left out on purpose
//! server    what the module's shell keeps for one lock, and how it drives the core
//! world     servers, owners and time; what is promised
//! ```

mod server;
mod setting;
mod world;

pub use setting::{Breach, Log, OldPrimary, Setting, Watch};
pub use world::{Broken, Event, Failover};
