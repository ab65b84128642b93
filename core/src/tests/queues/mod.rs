//! Several locks and their waiters: who is woken when, and which requests are rejected.
//!
//! ```text
//! ops            requests, replies and fixtures in types that belong neither to the core nor to the model
//! naive          the model: several locks with queues
//! schedule       random schedules: requests, disconnects, time, and events of locks and the server
//! subject        the core behind `ops`: a server with several locks and their queues
//! invariants     what must be true after every transition, whatever was requested
//! pair           core and model side by side
//! dsl            for tests by example
//!
//! rules          the contract by example, to be read
//! deadlocks      requests that could never be granted, and the cost of finding them
//! against_model  random schedules
//! replay         what is replicated of hand-overs gives the same state
//! exhaustive     every reachable state of a few owners and small locks
//! ```

mod against_model;
mod deadlocks;
mod dsl;
#[cfg(not(miri))] // Millions of states.
mod exhaustive;
mod invariants;
mod naive;
mod ops;
mod pair;
mod replay;
mod rules;
mod schedule;
mod subject;
