//! The thread of the locks: it has the connections to all servers.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;
use std::{io, process, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::Error;

/// How often a thread that is to end looks whether its tasks have.
const PAUSE: Duration = Duration::from_millis(50);

/// The way to the thread. When it is dropped, the thread ends, once all its tasks have: also the releases of those servers
/// that are away.
pub(crate) struct Thread {
    pub runtime: Handle,
    /// The process that has it.
    pid: u32,
    _in_use: oneshot::Sender<Infallible>,
}

impl Thread {
    pub fn start() -> Result<Self, Error> {
        let no_thread = |error: io::Error| Error::Invalid(format!("the system creates no thread: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (_in_use, unused) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                let _ = unused.await;
                while runtime.metrics().num_alive_tasks() > 0 {
                    sleep(PAUSE).await;
                }
            });
        };
        let thread = thread::Builder::new().name("dlock".into()).spawn(run);
        thread.map_err(no_thread)?;
        Ok(Self {
            runtime: handle,
            pid: process::id(),
            _in_use,
        })
    }

    /// Does this on the thread, for as long as the caller waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        if process::id() != self.pid {
            let text = "this process was forked after the locks were opened: open them in each process";
            return Err(Error::Invalid(text.into()));
        }
        let mut running = self.spawn(work);
        let panicked = |_| Err(Error::Invalid("the thread of the locks has panicked".into()));
        (&mut running.task).await.unwrap_or_else(panicked)
    }

    /// Does this on the thread, for as long as the returned value is kept.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Running<T> {
        let work: Work<T> = Arc::new(Mutex::new(Some(Box::pin(work))));
        let polled = Arc::clone(&work);
        let task = self.runtime.spawn(poll_fn(move |context| {
            let mut work = polled.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(running) = &mut *work else {
                return Poll::Pending;
            };
            let done = ready!(running.as_mut().poll(context));
            *work = None;
            Poll::Ready(done)
        }));
        Running { work, task }
    }

    /// Does this in the calling task, over the connections of the thread: they keep the order of requests.
    pub async fn lend<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            work.as_mut().poll(context)
        })
        .await
    }
}

/// Work on the thread. Dropped, it ends at once, and what it has is given back by the thread that drops it, which waits for
/// that when it ends itself, as a main thread does.
pub(crate) struct Running<T> {
    work: Work<T>,
    task: JoinHandle<T>,
}

/// None: it is done, or was dropped.
type Work<T> = Arc<Mutex<Option<Pin<Box<dyn Future<Output = T> + Send>>>>>;

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.task.abort();
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn thread_ends_when_it_is_not_in_use_and_its_tasks_have_ended() {
        let thread = Thread::start().unwrap();
        let runtime = thread.runtime.clone();
        let (end, ended) = oneshot::channel();
        let task = runtime.spawn(ended);
        drop(thread);
        sleep(PAUSE * 2).await;
        end.send(()).unwrap();
        assert!(task.await.unwrap().is_ok());
        let ending = async {
            while runtime.spawn(async {}).await.is_ok() {
                sleep(PAUSE / 10).await;
            }
        };
        timeout(Duration::from_secs(10), ending).await.unwrap();
    }

    #[tokio::test]
    async fn work_ends_at_once_when_nobody_waits_for_it() {
        let thread = Thread::start().unwrap();
        let (kept, mut dropped) = oneshot::channel::<()>();
        let work = async move {
            let _kept = kept;
            std::future::pending().await
        };
        let running = thread.run::<()>(work);
        assert!(timeout(PAUSE, running).await.is_err());
        assert!(
            dropped
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
        );
    }
}
