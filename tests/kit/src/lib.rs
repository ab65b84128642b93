//! Shared by the tests over the wire: real servers, clients, and ways to wait.
//!
//! `DLOCK_SERVER` names the server program (default `redis-server`), `DLOCK_MODULE` the module (default
//! the one that cargo built beside the test). A test probes for the feature that it needs, and checks the
//! server's version only where there is nothing to probe for.

#![allow(missing_docs, reason = "only the tests of this workspace use this crate")]

mod client;
pub mod client_libraries;
mod cluster;
mod connection;
mod events;
mod forkless;
mod inbox;
mod info;
pub mod payload;
mod port;
mod process;
mod programs;
mod proxy;
mod raw;
mod replication;
mod sentinel;
mod server;
mod skip;
pub mod tls;
mod wait;
mod waiter;
mod wall_clock;

pub use client::{Client, Grant};
pub use cluster::{Cluster, MEET_INTERVAL, Move};
pub use connection::{Connection, packed};
pub use events::Events;
pub use forkless::Forkless;
pub use inbox::{Answer, AnswerGrant, Delivery, Inbox, Outcome};
pub use info::{HolderInfo, LockInfo};
pub use port::{free_port, free_ports_with_bus};
pub use process::signal;
pub use programs::{is_installed, run, target};
pub use proxy::{Proxy, Rejection, Request, Way};
pub use raw::{bytes_of_replies, reply_bytes};
pub use replication::ReplicationStream;
pub use rustix::process::Signal;
pub use sentinel::Sentinel;
pub use server::{Server, module_path, start, start_with};
pub use skip::{skip, skip_part};
pub use wait::{SLOW_MACHINE, assert_elapsed_at_most, every, pause, renewed, soon, until, wait_for};
pub use waiter::{Reply, Waiter, WaiterInfo};
pub use wall_clock::WallClock;
