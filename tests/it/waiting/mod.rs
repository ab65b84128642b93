//! Blocked clients: the queue, hand-overs, timeouts, departures, deadlocks, rolled back grants.

mod costs;
mod databases;
mod deadlocks;
mod foreign_commands;
mod grant_rollback;
mod handover;
mod multi_and_lua;
mod order;
mod paused_writes;
mod queue_limits_and_info;
mod races;
mod replication;
mod request_ids;
mod scale;
mod unblock_and_kill;
