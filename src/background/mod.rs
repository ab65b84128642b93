//! What the module does without a request: queues that are due, active expiry, checkpoints.

pub mod checkpoint;
pub mod due;
pub mod gate;
pub mod grace;
mod inboxes;
mod moved;
pub mod pass;
pub mod rollback;
pub mod scheduler;
mod sweeper;
