//! What replicas and the log are told.

pub mod targets;
