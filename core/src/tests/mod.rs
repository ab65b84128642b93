//! Tests of the core as a whole.
//!
//! ```text
//! ops            requests, replies and views in types that belong neither to the core nor to the model
//! naive          the model: one lock by the letter of the contract, without optimizations
//! schedule       random schedules: which requests arrive, how time passes, when a server starts or is promoted
//! subject        the core behind `ops`; checks the invariants after every transition
//! invariants     what must be true after every transition, whatever was requested
//!
//! rules          the contract by example, to be read
//! against_model  random schedules, core and model side by side
//! replay         what is replicated gives the same state: on lagging replicas, from the AOF, after a promotion
//! exhaustive     every reachable state of small locks
//! scaling        many holders in one transition: the work is linear in their number
//! codec          the encoding: nothing is lost, nothing unsound is accepted
//! queues         the same for several locks and their waiters
//! ```

mod against_model;
mod codec;
#[cfg(not(miri))] // Millions of states.
mod exhaustive;
mod invariants;
mod naive;
mod ops;
mod queues;
mod replay;
mod rules;
#[cfg(not(miri))] // Measures time.
mod scaling;
mod schedule;
mod subject;
