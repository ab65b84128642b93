//! Blocked clients: hand-overs, departures, deadlocks, rolled back grants, many at once.

mod costs;
mod deadlocks;
mod grant_rollback;
mod handover;
mod paused_writes;
mod scale;
mod unblock_and_kill;
