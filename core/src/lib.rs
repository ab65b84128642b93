//! The core: what a lock is and how it changes. Pure Rust: no Redis, no clock, no randomness, no globals.
//!
//! ```text
//! inputs + request + lock + server state  ->  transition  ->  reply + effects
//! ```
//!
//! A [`Transition`] decides everything: who is granted the lock, with which fencing token, what is replicated
//! and which events are published. The shell around the core only carries out the [`Effects`].
//!
//! ```
//! use dlock_core::{Acquire, Acquired, Effects, Environment, Inputs, Instant, Lock, LockNameRef, Policy, Role, ServerState};
//! use dlock_core::WallClock;
//!
//! struct Fixed;
//! impl Environment for Fixed {
//!     fn wall_clock(&self) -> WallClock { WallClock::from_unix_ms(1_750_000_000_000) }
//!     fn random(&self) -> u64 { 0 }
//! }
//! let inputs = Inputs {
//!     now: Instant::from_micros(1),
//!     role: Role::Primary,
//!     slot: None,
//!     must_encode: true,
//!     environment: &Fixed,
//! };
//! let mut server = ServerState::default(); // fence counter, grace period and queues of the server
//! server.set_policy(Policy { max_waiters_per_lock: 100, max_waiters: 100, max_inboxes: 10, ..Policy::default() });
//! let mut lock = Lock::default(); // the value of the key, free at first
//! let mut effects = Effects::default();
//!
//! let args = ["alice", "30000", "BLOCK", "0"].map(str::as_bytes);
//! let request = Acquire::parse(args.into_iter(), 60_000)?;
//!
//! let mut transition = server.begin(&inputs, LockNameRef::new(0, b"key"), &mut lock, &mut effects);
//! let outcome = transition.acquire(&request, b"default");
//! // Store the lock, then carry out the effects: block, replicate, count, deliver, publish. Also after an error.
//! assert!(matches!(outcome?, Acquired::Granted(granted) if granted.holds == 1));
//! assert!(!lock.is_free() && effects.change().is_some());
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

pub mod cluster;
mod collections;
mod deadlock;
mod effects;
pub mod engine;
pub mod expiry;
mod fence;
mod inbox;
mod lock;
pub mod memory;
mod names;
mod time;
mod transition;
mod waiting;
mod wire;

pub use collections::{IdHasher, IdMap, InlineBytes, Shrink};
pub use deadlock::Cycle;
pub use effects::{Answer, Effects, MaxAnswers, Wake};
pub use fence::{AdvanceReason, Fence, Fences, MAX_FENCE, WallClock};
pub use inbox::{Answered, GrantsReply, InboxStep, Inboxes, Received, Reply, Undelivered};
pub use lock::{Holder, Lock, decode_lock, encode_lock};
pub use names::{Call, InboxId, Limit, LockName, LockNameRef, Ticket};
pub use time::{
    Environment, Grace, GraceKind, GraceLength, GraceSettings, Inputs, Instant, LeaseClock, Role,
};
pub use transition::{Checkpoint, Offset, Policy, Replicas, ServerState, Transition, maxima_of_change};
pub use waiting::{Queue, WaitTable, Waiter};
pub use wire::{
    Acquire, Acquired, Caller, Error, Event, Extend, Full, GrantRef, Granted, Grants, Guard, Holds, Outcome,
};
pub use wire::{Release, Timeout, Wait, number};

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
#[allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "only tests of this workspace use it"
)]
pub mod testing;
#[cfg(test)]
mod tests;
