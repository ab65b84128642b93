//! Work of a caller in a task of its own. Each reply of a server wakes that task, on a thread of the runtime; the
//! caller, whose thread may be another one, is only woken by the outcome.

use std::future::poll_fn;
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::RedisError;
use tokio::task::{JoinError, JoinHandle};

use crate::error::Error;
use crate::renewal::RenewalThread;

/// A task of the caller's runtime. Dropped, it is cancelled.
pub(super) struct Task<T: Send + 'static> {
    handle: Option<JoinHandle<Result<T, Error>>>,
    renewal_thread: Arc<RenewalThread>,
}

impl<T: Send + 'static> Task<T> {
    pub fn start(
        renewal_thread: &Arc<RenewalThread>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        Self {
            handle: Some(tokio::spawn(work)),
            renewal_thread: Arc::clone(renewal_thread),
        }
    }
}

impl<T: Send + 'static> Future for Task<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(handle) = &mut self.handle else {
            return Poll::Pending;
        };
        let joined = ready!(Pin::new(handle).poll(context));
        self.handle = None;
        Poll::Ready(outcome(joined))
    }
}

impl<T: Send + 'static> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.abort();
            // Resolves when the work, or its outcome, has been dropped.
            self.renewal_thread.spawn(async { drop(handle.await) });
        }
    }
}

/// The outcome of a task.
pub(super) fn outcome<T>(joined: Result<Result<T, Error>, JoinError>) -> Result<T, Error> {
    joined.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        // The runtime is shutting down.
        Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::NotConnected)).into()),
    })
}

/// Lets the tasks go first that are ready, for instance one that writes a request.
pub(super) async fn give_way() {
    let mut is_ready = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_ready, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
