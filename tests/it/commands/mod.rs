//! The commands of a client that does not wait: their effects, errors and replies.

mod acquire;
mod argument_errors;
mod expiry;
mod guard;
mod reply_shapes;
mod watch_and_tracking;
