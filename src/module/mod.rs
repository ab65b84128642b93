//! The module as the server sees it: settings, data type, events, INFO, and the module's own state.

pub mod cluster;
pub mod config;
pub mod data_type;
mod events;
pub mod eviction;
pub mod fences;
pub mod footprint;
mod info;
mod latency_histogram;
pub mod load;
pub mod restored;
pub mod state;
pub mod stats;
