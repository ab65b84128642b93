//! Locks and waiters in a cluster: redirections, slots that move, failovers.

mod slots;
mod waiting;
