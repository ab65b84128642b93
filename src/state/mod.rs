//! The module's own state, and what is known of the server: settings, clocks, slots, blocked clients.

pub mod clock;
pub mod cluster;
pub mod config;
pub mod counters;
pub mod error;
pub mod inputs;
mod latency_histogram;
pub mod module_state;
pub mod policy;
pub mod readers;
pub mod replication_targets;
pub mod snapshot_clock;
pub mod wait_timer;
