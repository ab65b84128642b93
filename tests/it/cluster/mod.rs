//! Locks and waiters in a cluster: redirections, slots that move, failovers.

mod atomic_migration;
mod fences;
mod guard;
mod slot_trim;
mod slots;
mod waiting;
