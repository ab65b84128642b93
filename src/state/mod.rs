//! The module's own state, and what is known of the server: settings, slots, fences, blocked clients.

pub mod clients;
pub mod cluster;
pub mod config;
pub mod counters;
pub mod error;
pub mod eviction;
pub mod fences;
pub mod footprint;
mod latency_histogram;
pub mod module_state;
pub mod replication_targets;
pub mod untracked;
pub mod wait_timer;
