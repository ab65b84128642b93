//! Locks on a majority of several independent servers: Redlock, with fencing tokens and a fair queue.
//!
//! A lock on one server is lost with that server. A lock on a majority of independent servers, which do not replicate
//! each other, survives the loss of a minority: of five servers, two may fail. Names and rules are those of
//! [`Locks`](crate::Locks) and [`Guard`](crate::Guard).
//!
//! ```no_run
//! use redis_dlock_quorum::quorum;
//!
//! # async fn work() -> Result<(), redis_dlock_quorum::Error> {
//! let servers = ["redis://10.0.0.1/", "redis://10.0.1.1/", "redis://10.0.2.1/"];
//! let locks = quorum::Locks::open(servers)?;
//! let guard = locks.acquire("orders:42").await?;
//! println!("fence {}", guard.fence());
//! // ... while guard.is_held()
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! 1. *The first server.* The client acquires the lock on the first of the configured servers that it does not know to be
//!    down, and then on the others, all at once and under the same fence.
//! 2. *The doorway.* If others hold the lock, the client acquires a second one on the first server, named `KEY:doorway`,
//!    asks all servers for the lock at once, and releases the doorway as soon as that is sent. So the requests of all
//!    clients wait in the same order on all servers, and after a release the next client has the lock in one round trip.
//! 3. *The fence.* Where it is smaller, because other locks or a restart came between, it is raised. The guard is
//!    returned when a majority holds the lock under exactly one fence. A lock that is free takes two round trips, and in
//!    about one of a hundred acquisitions a third one. What other servers grant later joins the lock.
//! 4. *Renewal and release* go to all servers.
//! 5. *Less than a majority.* A client that is granted the lock by too few servers for longer than the node timeout asks
//!    who holds it (`DLOCK.OWNER`). If nobody has a majority, it gives up those grants and its places in all queues, and
//!    passes the doorway again.
//!
//! # Guarantees
//!
//! - At most one exclusive guard is valid at a time: two majorities have a server in common. A lease counts from before
//!   the request was sent, minus 1 % and 2 ms, for clock drift between several machines. [`Guard::remaining`] is the time
//!   until too few leases are left.
//! - [`Guard::fence`] is larger than that of every earlier holder. So a resource that rejects smaller fences is safe from
//!   a holder that was paused.
//! - The queue is FIFO, as long as the clients agree which server is the first: that is when they have the same list of
//!   servers in the same order, and the first one is up. Requests that wait keep their order when it fails. A server that
//!   goes silent while requests wait there is noticed within the node timeout
//!   ([`Settings::response_timeout`](crate::Settings::response_timeout)).
//! - A client that reaches only a minority gets no guard, and leaves nothing behind that blocks others for longer than a
//!   lease. Clients that end without notice, however many of them are queued, delay others for one lease in all.
//! - [`Guard::lost`] resolves when too few servers are left. [`Guard::release`] reports when a majority no longer had the
//!   lock.
//!
//! # Conditions
//!
//! `dlock doctor URL URL URL...` checks them.
//!
//! - Three, five or seven servers. An even number is allowed, but no better than one less: of four, only one may fail.
//! - Each has `dlock.quorum yes`, and no replicas.
//! - Users whose permissions name keys may use `KEY:doorway` as they use `KEY`: `~orders:*` covers both.
//! - None forgets a lock: each has `appendfsync always`, or `dlock.startup-grace-ms` of at least the longest lease.
//! - For fences: their wall clocks are closer to each other than that grace period.
//!
//! # Not offered
//!
//! - Fences of shared locks: their holders have different ones, and they would not order them.
//! - Semaphores. Two majorities have a server in common, but three need not: each server would respect its limit, but five
//!   servers with limit 3 would admit five holders.
//! - Re-entry. Each acquisition has a unique owner. Nor a minimum time, replicas, or the handing over of guards.
//! - Replacing a server while a lock is held: one that lost the lock does not get it back. If servers restart without
//!   their data, one after the other, do not restart a majority of them while the same lock is held.
//!
//! # Events
//!
//! What becomes of a lock is reported once, with the address of the first configured server. Renewals and cancellations
//! are reported for each server.

mod acquire;
mod ask;
#[cfg(feature = "blocking")]
mod blocking;
mod doorway;
mod enter;
mod fences;
mod guard;
mod health;
mod held;
mod locks;
mod majority;
mod member;
mod mode;
mod pace;
mod release;
mod releases;
mod request;
mod round;
mod servers;
mod slices;
mod standing;
mod task;
mod turns;

pub use crate::error::{NoQuorum, NodeFailure};
pub use guard::Guard;
pub use locks::{Lock, Locks};
pub use mode::{Exclusive, Mode, Shared};
