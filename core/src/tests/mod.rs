//! Tests of the core as a whole.
//!
//! ```text
//! plain          requests, answers and views in words that belong neither to the core nor to the model
//! naive          the model: one lock as the contract tells it, without any cleverness
//! schedule       random schedules: who asks what, how time passes, when a server starts or is promoted
//! subject        the core behind plain words; checks the promises at every single step
//! promises       what must be true of every step, whatever was asked
//!
//! rules          the contract by example, to be read
//! against_model  random schedules, core and model side by side
//! replay         what is replicated gives the same state, on lagging replicas, from a log, after a promotion
//! exhaustive     every reachable state of small locks
//! masses         many holders in one step: the work grows with their number
//! bytes          the encoding: nothing lost, nothing believed that cannot be
//! queues         the same for several locks and those who wait for them
//! ```

mod against_model;
mod bytes;
mod exhaustive;
mod masses;
mod naive;
mod plain;
mod promises;
mod queues;
mod replay;
mod rules;
mod schedule;
mod subject;
