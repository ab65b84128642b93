//! The contract of the core. `crate::testing` has the server and the model.
//!
//! ```text
//! dsl            requests as text, for tests by example
//! schedule       random schedules
//!
//! rules          locks and queues: ends of ranges, settings, rollbacks. The rest is in the transcripts of `tests/rules`
//! inbox_rules    inboxes: sizes, passes of the server's loop. The rest is in the transcripts
//! deadlocks      the cycle in the error, and the cost of finding it
//! failovers      fences and grace periods over promotions and restarts, and the gaps that remain
//! against_model  random schedules, core and model side by side, and a replica that lags
//! one_answer_each  transitions that answer one waiter each, and requests between them
//! crash          a crash after every record that is replicated: restart from the log, promotion of the replica
//! host_calls     what the engine has its host do: in which order, how often, and when the host refuses
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
mod failovers;
mod host_calls;
mod inbox_rules;
mod one_answer_each;
mod rules;
#[cfg(not(miri))] // Measures time.
mod scaling;
mod schedule;
mod sync_replicas;
