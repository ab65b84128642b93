//! Several locks and those who wait for them: who is woken when, who is refused.
//!
//! ```text
//! plain          requests, answers and scenes in words that belong neither to the core nor to the model
//! naive          the model: several locks with queues
//! schedule       random schedules: who asks what, who leaves, how time passes, what befalls locks and server
//! subject        the core behind plain words: a server with several locks and their queues
//! promises       what must be true of every step, whatever was asked
//! pair           core and model side by side
//! words          for the tests that go by example
//!
//! rules          the contract by example, to be read
//! deadlocks      the same for requests that could never be served, and for what it takes to find them
//! against_model  random schedules
//! replay         what is replicated of hand-overs gives the same state
//! exhaustive     every state that a few owners can bring small locks into
//! ```

mod against_model;
mod deadlocks;
mod exhaustive;
mod naive;
mod pair;
mod plain;
mod promises;
mod replay;
mod rules;
mod schedule;
mod subject;
mod words;
