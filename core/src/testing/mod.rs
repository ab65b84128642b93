//! The core as a server, and the model that it is compared with: what the tests of the core and the fuzzer drive.
//!
//! ```text
//! ops         requests, replies and views: what core and model are compared by
//! naive       the model: locks with queues by the letter of the contract, without optimizations
//! step        what can happen: requests, disconnects, time, and events of locks and of the server
//! server      the engine on a host in memory; checks the invariants after every transition
//! invariants  what must be true after every transition, whatever was requested
//! pair        core and model side by side
//! follow      a replica executes what the server replicated
//! ```

mod follow;
mod invariants;
mod naive;
mod ops;
mod pair;
mod server;
mod step;

pub use follow::execute;
pub use naive::Holder as ModelHolder;
pub use ops::{Answer, Client, LockView, Micros, OWNERS, Reply, Request, Waiter, block};
pub use pair::Pair;
pub use server::{Command, IN_2025_UNIX_MS, ORIGIN, Saved, Sent, Server, Stored};
pub use step::{Admin, GivenFence, Memory, Pass, Step};
