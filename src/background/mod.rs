//! What the module does without a request: queues that are due, active expiry, checkpoints.

pub mod checkpoint;
pub mod due;
pub mod gate;
mod inboxes;
pub mod rollback;
pub mod scheduler;
mod sweeper;
