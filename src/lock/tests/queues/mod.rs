//! Several locks and those who wait for them: who is woken when, who is refused.
//!
//! ```text
//! subject        the core behind plain words: a server with several locks and their queues
//!
//! rules          the contract by example, to be read
//! ```

mod rules;
mod subject;
