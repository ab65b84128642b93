//! The core: what a lock is and how it changes. Pure Rust: no Redis, no clock, no randomness, no globals.
//!
//! ```text
//! request + lock + engine + context  ->  transition  ->  reply + effects
//! ```
//!
//! A [`Transition`] decides everything: who is granted the lock, with which fencing token, what is replicated
//! and which events are published. The shell around the core only carries out the [`Effects`].
//!
//! ```
//! use dlock_core::{Acquire, Acquired, Effects, Engine, Instant, Lock, LockRef, WaitPolicy};
//!
//! let mut engine = Engine::starting(); // fence counter, grace period and queues of the server
//! let mut lock = Lock::default(); // the value of the key, free at first
//! let mut effects = Effects::default();
//!
//! let cx = engine.context(Instant::from_micros(1));
//! let args = ["alice", "30000", "BLOCK", "0"].map(str::as_bytes);
//! let request = Acquire::parse(args.into_iter(), 60_000)?;
//! let policy = WaitPolicy { max_waiters: 100, detect_deadlocks: true };
//!
//! let mut transition = engine.begin(LockRef::new(0, b"key"), &mut lock, &cx, &mut effects);
//! let outcome = transition.acquire(&request, policy);
//! // Store the lock, then perform the effects: replicate, reply, wake, publish. Also after an error.
//! assert!(matches!(outcome?, Acquired::Granted(granted) if granted.holds == 1));
//! assert!(!lock.is_free() && !effects.change().is_empty());
//! # Ok::<(), dlock_core::Error>(())
//! ```

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

pub mod cluster_fences;
pub mod cluster_slots;
mod codec;
mod context;
mod deadlock;
mod effects;
mod engine;
mod error;
pub mod expiry;
mod fence;
mod grace;
mod holder_key;
mod inline_bytes;
mod limit;
mod lock;
mod name;
mod outcome;
mod queue;
mod request;
mod small_map;
mod ticket;
mod time;
mod transition;
mod wait_table;

pub use codec::{decode_lock, encode_lock};
pub use context::TransitionContext;
pub use deadlock::Cycle;
pub use effects::{Answer, Effects, Replication, Wake};
pub use engine::{Checkpoint, Engine};
pub use error::Error;
pub use fence::{AdvanceReason, Fences, MAX_FENCE, WallClock};
pub use grace::{Grace, GraceLength, GraceSettings};
pub use inline_bytes::InlineBytes;
pub use limit::Limit;
pub use lock::{Holder, Lock};
pub use name::{LockName, LockRef};
pub use outcome::{Acquired, Enqueued, Event, Granted};
pub use queue::{Queue, Waiter};
pub use request::{Acquire, Extend, GrantRef, Guard, Holds, Release, Timeout, number};
pub use ticket::Ticket;
pub use time::Instant;
pub use transition::Transition;
pub use wait_table::{WaitPolicy, WaitTable};

#[cfg(test)]
mod tests;
