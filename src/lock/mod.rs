//! The core: what a lock is and how it changes. Pure Rust, no FFI, no clock, no randomness, no globals.
//!
//! ```text
//! request + state + moment  ->  step  ->  reply + effects
//! ```
//!
//! A step decides everything: who holds the lock, which fence they get, what is replicated and which
//! events are announced. The shell (`crate::server`) only carries it out.

mod effects;
mod encoding;
mod fence;
mod limit;
mod refusal;
mod request;
mod state;
mod step;
mod time;

pub use effects::{Effects, Event, Replication};
pub use encoding::{Malformed, decode_lock, encode_lock};
pub use fence::{Fences, MAX_FENCE, Raise, WallClock};
pub use limit::Limit;
pub use refusal::Refusal;
pub use request::{Acquire, Extend, Release, number};
pub use state::{Holder, Lock};
pub use step::{Granted, Moment, acquire, apply, expire, extend, release, release_as_told};
pub use time::Instant;

#[cfg(test)]
mod tests;
