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

mod codec;
mod deadlock;
mod effects;
mod error;
pub mod expiry;
mod fence;
mod grace;
mod holder_key;
mod limit;
mod lock;
mod queue;
mod request;
mod time;
mod transition;
mod wait_cycle;
mod wait_table;

pub use codec::{decode_lock, encode_lock};
pub use effects::{Answer, Effects, Event, Replication};
pub use error::Error;
pub use fence::{AdvanceReason, Fences, MAX_FENCE, WallClock};
pub use grace::{Grace, GraceLength, GraceSettings};
pub use limit::Limit;
pub use lock::{Holder, Lock};
pub use queue::{Queue, Ticket, Waiter};
pub use request::{Acquire, Extend, Holds, Release, Timeout, number};
pub use time::Instant;
pub use transition::{
    Granted, TransitionContext, acquire, apply, apply_release, expire_holders, extend, on_timer, release,
    rollback_grant,
};
pub use wait_cycle::Cycle;
pub use wait_table::{Enqueued, LockName, WaitPolicy, WaitTable};

#[cfg(test)]
mod tests;
