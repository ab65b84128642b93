//! Specification and code agree: what the specification in `spec/` did, the code does.
//!
//! Quint writes random runs of the specification as files. Each step says what happened, which reply it had, and what
//! the state was afterwards. A replay does the same with the code, and compares reply and state after every step.
//!
//! ```text
//! trace     a run of the specification, as Quint writes it
//! lock      replays spec/lock.qnt against the core
//! model     ... and against the rules by which histories of real servers are checked
//! failover  replays spec/failover.qnt against a core each for primary, replica and old primary
//! guard     replays spec/guard.qnt against a core for each server, and the GUARD that it checks
//! inbox     replays spec/inbox.qnt against the core and its inboxes
//! quorum    replays spec/quorum.qnt against the machine of the client
//! server    ... and against three cores, the servers of the quorum
//! ```

#![allow(missing_docs, reason = "only tests use this crate")]

pub mod failover;
pub mod guard;
pub mod inbox;
pub mod lock;
pub mod model;
pub mod quorum;
pub mod server;
pub mod trace;
