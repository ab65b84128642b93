//! The client against real servers.

mod acquire;
mod addresses;
mod cluster;
mod dropped;
mod examples;
mod exit;
mod faults;
mod fenced;
mod lost;
mod reconnect;
mod runtimes;
mod shutdown;
mod support;
mod tls;
mod waiting;
