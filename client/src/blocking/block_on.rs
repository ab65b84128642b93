use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::hold::LostReason;
use crate::lost::{LeaseStatus, poll_interval, reason_of};

/// Runs a future on this thread, its timers and connections on that of the runtime. Unlike the function of
/// the runtime, it also works within another runtime: there it blocks a thread, but does not panic.
pub(super) fn block_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let _inside = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // A task around this thread has a budget, which is not refilled as long as the task does not yield: once it is
    // spent, the wake-ups go to the runtime of that task, which this thread keeps from passing them on.
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

/// As [`lost`](crate::lost::lost), by the timers of this thread: those of the background may be held up with it.
pub(super) fn block_until_lost(token: &CancellationToken, look: impl Fn() -> LeaseStatus) -> LostReason {
    let reason = block_until_any_lost(std::slice::from_ref(token), look);
    token.cancel();
    reason
}

/// The same for several locks, of which one is lost.
pub(super) fn block_until_any_lost(
    tokens: &[CancellationToken],
    look: impl Fn() -> LeaseStatus,
) -> LostReason {
    loop {
        match look() {
            Err(reason) => return reason,
            Ok(remaining) => {
                let each = tokens.iter().map(|token| Box::pin(token.cancelled()));
                if block_for(poll_interval(remaining), select_all(each)) {
                    return reason_of(look());
                }
            }
        }
    }
}

/// Runs a future that needs no runtime on this thread, for so long at most. Whether it has ended.
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
