use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::error::LostReason;
use crate::lost::{LeaseStatus, poll_interval, reason_of};

/// Runs a future on this thread, with the timers and sockets of `runtime`. Unlike `Handle::block_on`, it does not panic
/// within another runtime: there it blocks a worker thread.
pub(super) fn block_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // A task around this thread has a coop budget, which is not refilled until the task yields. Once it is spent,
    // wake-ups go through the runtime of that task, which this thread blocks.
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

/// As [`lost`](crate::lost::lost) for the first of several locks, with this thread's own timers: a hook that blocks
/// the renewal thread blocks its timers, too.
pub(super) fn block_until_lost(tokens: &[CancellationToken], status: impl Fn() -> LeaseStatus) -> LostReason {
    loop {
        let remaining = match status() {
            Err(reason) => return reason,
            Ok(remaining) => remaining,
        };
        let cancelled = select_all(tokens.iter().map(|token| Box::pin(token.cancelled())));
        if block_for(poll_interval(remaining), cancelled) {
            return reason_of(status());
        }
    }
}

/// Runs a future that needs no runtime on this thread, for at most `limit`. Whether it has completed.
fn block_for(limit: Duration, future: impl Future) -> bool {
    let begun = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(unconstrained(future));
    while future.as_mut().poll(&mut context).is_pending() {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
    }
    true
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
