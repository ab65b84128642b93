use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::task::unconstrained;

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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
