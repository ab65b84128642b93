//! The client against real servers.

mod acquire;
mod addresses;
mod blocking;
mod cluster;
mod commands;
mod dropped;
mod examples;
mod faults;
mod fenced;
mod known_pitfalls;
mod lost;
mod many;
mod proxy;
mod quorum;
mod readme;
mod reconnect;
mod replicas;
mod settle;
mod stress;
mod support;
mod tls;
mod together;
mod waiting_budget;
