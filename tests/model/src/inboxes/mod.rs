//! Waiting without a connection: clients with two connections each, one for requests, one for the reader of an inbox.
//! Messages get lost and arrive late, each side notices a lost connection when it likes, clients are paused and die, the
//! server is replaced.
//!
//! ```text
//! setting   what can happen, and which rule is left out on purpose
//! message   what clients and server send each other, and the connections
//! client    what a client does: the rules for authors of clients
//! server    a server with one lock, which drives the core as the module does; which requests came first
//! adapter   a server without one of its rules
//! names     states that differ only in the numbers of cursors, inboxes and fences are the same
//! world     clients, server, connections and time; the guarantees
//! ```

mod adapter;
mod client;
mod message;
mod names;
mod server;
mod setting;
mod world;

pub use setting::{Breach, SecondName, Setting};
pub use world::{Inboxes, Violation};
