//! Locks and waiters in a cluster: redirections, slots that move, failovers.

mod atomic_migration;
mod fences;
mod guard;
mod slots;
mod waiting;
