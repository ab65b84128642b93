//! The engine: what decides about a lock *and* carries the decision out, on a [`Host`]. The module runs it in a server,
//! tests run it in memory.
//!
//! ```text
//! request -> read the clock, open the key -> transition -> store -> park, replicate, count, answer, notify -> reply
//! ```

mod acquire;
pub mod announcements;
pub mod answering;
pub mod checkpoint;
pub mod counters;
mod due;
mod error;
pub mod events;
mod gate;
pub mod grace;
pub mod guard;
pub mod held_back;
mod held_queue;
mod host;
mod inboxes;
mod internal_error;
pub mod keyspace;
mod latency_histogram;
mod lock_change;
mod lock_value;
mod moved;
mod pass;
mod perform;
mod read;
mod refused;
mod replicate;
mod replication_targets;
mod restored;
mod rollback;
pub mod scheduler;
pub mod slot_events;
mod state;
mod sweeper;
mod wait_timer;

pub use acquire::acquire;
#[cfg(any(test, feature = "testing"))]
pub(crate) use due::process_lock;
pub use error::Error;
pub use host::{Flags, Host, Level, OpenKey, Process, Stored, WriteCheck};
pub use lock_change::{Cause, apply, decide};
pub use lock_value::{LockValue, MAX_MS};
pub use read::{MAX_WAITERS_SHOWN, begin_read};
pub use state::EngineState;
