//! The module on a real server, over the wire.

mod admin;
mod cluster;
mod commands;
mod fixtures;
mod inboxes;
mod persistence;
mod replication;
mod waiting;
