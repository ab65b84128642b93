//! The core: what a lock is and how it changes. Pure Rust, no FFI, no clock, no randomness, no globals.
//!
//! ```text
//! request + state + moment  ->  step  ->  reply + effects
//! ```
//!
//! A step decides everything: who holds the lock, which fence they get, what is replicated and which
//! events are announced. The shell (`the shell`) only carries it out.

#![allow(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod circle;
mod deadlock;
mod effects;
mod encoding;
pub mod expiry;
mod fence;
mod grace;
mod identity;
mod limit;
mod queue;
mod refusal;
mod request;
mod state;
mod step;
mod time;
mod waiting;

pub use circle::Circle;
pub use effects::{Answer, Effects, Event, Replication};
pub use encoding::{Malformed, decode_lock, encode_lock};
pub use fence::{Fences, MAX_FENCE, Raise, WallClock};
pub use grace::{Grace, GraceLength, GraceSettings};
pub use limit::Limit;
pub use queue::{Queue, Ticket, Waiter};
pub use refusal::Refusal;
pub use request::{Acquire, Extend, Release, Share, Timeout, number};
pub use state::{Holder, Lock};
pub use step::{Granted, Moment, acquire, apply, drop_ended, extend, release, release_as_told, tend, undo};
pub use time::Instant;
pub use waiting::{Enqueued, LockName, NotQueued, Rules, Waiting};

#[cfg(test)]
mod tests;
