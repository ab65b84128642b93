//! What a process that ends waits for.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long the end of a thread, or of the last handle outside of async code, waits for releases.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// How many releases are on their way.
#[derive(Default)]
pub(crate) struct Exit {
    pending: AtomicUsize,
    /// How many threads wait. To notify nobody costs a system call, too.
    waiting: Mutex<usize>,
    settled: Condvar,
}

/// A release on its way. Whoever gives up a lock takes one, and the thread of the locks drops it when that is done.
pub(crate) struct Pending(Arc<Exit>);

impl Exit {
    /// The calling thread waits for it when it ends, as the main thread does when `main` returns.
    pub fn begin(self: &Arc<Self>) -> Pending {
        // A thread that is ending already does not wait.
        let _ = AT_THREAD_END.try_with(|ends| ends.add(self));
        self.begin_in_background()
    }

    /// Only the last handle, and [`Locks::shutdown`](crate::Locks::shutdown), wait for it.
    pub fn begin_in_background(self: &Arc<Self>) -> Pending {
        self.pending.fetch_add(1, Ordering::SeqCst);
        Pending(Arc::clone(self))
    }

    pub fn is_settled(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Waits for all releases, but not for long: a server may be gone.
    pub fn wait(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        let waited = self
            .settled
            .wait_timeout_while(waiting, LONGEST_WAIT, |_| !self.is_settled());
        *waited.unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Self(exit) = self;
        if exit.pending.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // Who waits has looked at the number before, or will look at it again.
        if *exit.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            exit.settled.notify_all();
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd(RefCell::new(Vec::new())) };
}

/// What this thread waits for when it ends. A process that returns from `main`, or calls `exit`, ends its main thread
/// first: without this, guards dropped just before would keep their locks for the rest of a lease.
struct AtThreadEnd(RefCell<Vec<Weak<Exit>>>);

impl AtThreadEnd {
    fn add(&self, exit: &Arc<Exit>) {
        let mut exits = self.0.borrow_mut();
        let is_known = |known: &Weak<Exit>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(exit));
        if !exits.iter().any(is_known) {
            exits.retain(|known| known.strong_count() > 0);
            exits.push(Arc::downgrade(exit));
        }
    }
}

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        for exit in self.0.take().iter().filter_map(Weak::upgrade) {
            exit.wait();
        }
    }
}
