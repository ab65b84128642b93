//! The commands of a client that does not wait: their effects, errors and replies.

mod acquire;
mod argument_errors;
mod expiry;
mod guard;
mod min_fence;
mod owner_and_info;
mod redis_rs_interop;
mod reply_shapes;
mod transactions_and_scripts;
mod watch_and_tracking;
