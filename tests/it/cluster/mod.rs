//! Locks and waiters in a cluster: redirections, slots that move, failovers.

mod fences;
mod guard;
mod slots;
mod waiting;
