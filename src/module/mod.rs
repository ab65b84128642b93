//! The module as the server sees it: settings, data type, events, INFO.

pub mod cluster;
pub mod config;
pub mod data_type;
pub mod events;
pub mod eviction;
pub mod fences;
pub mod histogram;
pub mod info;
pub mod load;
pub mod state;
pub mod stats;
