//! What the crate `redis-dlock-quorum` needs beyond the interface for applications: several servers on one thread, and
//! fences that are raised.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use redis::{Cmd, Value};
use tokio::runtime;

use crate::driver::no_thread;
use crate::error::{Error, Lost};
pub use crate::events::Hook;
use crate::guard::Guard;
use crate::locks::{Lock, Locks, Settings};
use crate::request::Operation;
use crate::server::Server;

/// Opens the locks of several servers on one thread, which also runs the tasks of its runtime, until all locks are gone
/// and all releases done.
pub fn open(servers: Vec<(Server, Settings)>) -> Result<(Vec<Locks>, runtime::Handle), Error> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| no_thread(&error))?;
    let tasks = runtime.handle().clone();
    let mut drivers = tokio::task::JoinSet::new();
    let locks = servers.into_iter().map(|(server, settings)| {
        let (locks, driver) = Locks::on_another_thread(server, settings);
        drivers.spawn_on(driver, &tasks);
        locks
    });
    let locks = locks.collect();
    let run = move || {
        runtime.block_on(async move { while drivers.join_next().await.is_some() {} });
    };
    let spawned: io::Result<_> = thread::Builder::new().name("dlock".into()).spawn(run);
    spawned.map_err(|error| no_thread(&error))?;
    Ok((locks, tasks))
}

/// That this process has the thread, and was not forked since.
///
/// # Errors
///
/// [`Error::Invalid`].
pub fn check_process(locks: &Locks) -> Result<(), Error> {
    locks.handle().check_process()
}

/// Sends a command that may be repeated.
pub async fn query(locks: &Locks, command: Cmd, within: Duration) -> Result<Value, Error> {
    locks.handle().query(command, true, within).await
}

/// Requests that wait find an inbox from now on, also the first one.
pub fn keep_inbox(locks: &Locks) {
    locks.handle().send(Operation::KeepInbox);
}

/// The address of the server, for messages.
pub fn label(locks: &Locks) -> Arc<str> {
    Arc::clone(&locks.handle().label)
}

/// The grant has at least this fence, and its fence can be raised.
pub fn with_min_fence(lock: Lock, fence: u64) -> Lock {
    lock.with_min_fence(NonZeroU64::new(fence))
}

/// Raises the fence of a hold.
///
/// # Errors
///
/// [`Error::Lost`]. Any other error of the server means that the fence is as before; without a reply it is not known.
pub async fn raise(guard: &Guard, lease: Duration, fence: u64) -> Result<(), Error> {
    guard.raise(lease, fence).await
}

/// The lease lasts to its end.
pub fn stop_renewing(guard: &Guard) {
    guard.stop_renewing();
}

/// Why a hold is lost, if it is.
pub fn lost(guard: &Guard) -> Option<Lost> {
    guard.lost_now()
}

/// Whether the server rejects what was asked for, as it does with a fence that is too large.
pub fn is_rejection(error: &Error) -> bool {
    error.has_code("ERR")
}

/// The address of a server, for messages.
pub fn label_of(server: &Server) -> Arc<str> {
    server.label()
}

/// Whether it is neither a cluster nor whichever server Sentinels name.
pub fn is_one_server(server: &Server) -> bool {
    server.is_one_server()
}
