use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::task::unconstrained;

/// Runs a future on this thread, with the timers and sockets of `runtime`, if it needs any. Unlike `Handle::block_on`, it
/// does not panic within another runtime: there it blocks a worker thread.
pub(crate) fn block_on<'a, T>(runtime: impl Into<Option<&'a Handle>>, future: impl Future<Output = T>) -> T {
    let _entered = runtime.into().map(Handle::enter);
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
