//! The contract of the core. `crate::testing` has the server and the model.
//!
//! ```text
//! dsl            requests as text, for tests by example
//! schedule       random schedules
//!
//! rules          the contract of one lock by example, to be read
//! queue_rules    the contract of waiters by example
//! inbox_rules    the contract of waiting through inboxes by example
//! deadlocks      requests that could never be granted, and the cost of finding them
//! against_model  random schedules, core and model side by side
//! one_answer_each  transitions that answer one waiter each, and requests between them
//! replay         what is replicated gives the same state: on lagging replicas, from the AOF, after a promotion
//! crash          a crash after every record that is replicated: restart from the log, promotion of the replica
//! sync_replicas  grants that replicas have before anybody is told
//! exhaustive     every reachable state of small locks, with and without queues
//! scaling        many holders in one transition: the work is linear in their number
//! codec          the encoding: nothing is lost, nothing unsound is accepted
//! ```

mod against_model;
mod codec;
#[cfg(not(miri))] // Ten thousand sequences.
mod crash;
mod deadlocks;
mod dsl;
#[cfg(not(miri))] // Millions of states.
mod exhaustive;
mod inbox_rules;
mod one_answer_each;
mod queue_rules;
mod replay;
mod rules;
#[cfg(not(miri))] // Measures time.
mod scaling;
mod schedule;
mod sync_replicas;
