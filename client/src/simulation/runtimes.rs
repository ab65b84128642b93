//! Runtimes, within the one that runs the simulation: each task belongs to one, which may be idle or gone.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::runtime;
use tokio::task::JoinHandle;

thread_local! {
    /// That of the task that runs.
    static CURRENT: RefCell<Option<Arc<Runtime>>> = const { RefCell::new(None) };
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// What tells runtimes apart. One that has ended may have the id of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuntimeId {
    Real(runtime::Id),
    Simulated(usize),
}

/// The id of the runtime of the calling task.
pub(crate) fn id_of(runtime: &runtime::Handle) -> RuntimeId {
    let simulated = CURRENT.with_borrow(|current| current.as_ref().map(|current| current.id));
    simulated.unwrap_or(RuntimeId::Real(runtime.id()))
}

/// The runtime of the calling task.
pub(crate) fn handle_of(runtime: &runtime::Handle) -> RuntimeHandle {
    RuntimeHandle {
        real: runtime.clone(),
        simulated: CURRENT.with_borrow(Clone::clone),
    }
}

/// Spawns tasks in a runtime.
#[derive(Clone)]
pub(crate) struct RuntimeHandle {
    real: runtime::Handle,
    simulated: Option<Arc<Runtime>>,
}

impl RuntimeHandle {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.simulated {
            Some(simulated) => simulated.spawn_task(task).1,
            None => self.real.spawn(task),
        }
    }
}

impl Deref for RuntimeHandle {
    type Target = runtime::Handle;

    fn deref(&self) -> &runtime::Handle {
        &self.real
    }
}

/// Whether a task has panicked, since the last call.
pub(super) fn has_panicked() -> bool {
    HAS_PANICKED.take()
}

pub(super) struct Runtime {
    id: RuntimeId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tasks run only while there are none.
    pauses: usize,
    has_ended: bool,
    tasks: Vec<Weak<Task>>,
    /// What is to be polled after a pause.
    woken: Vec<Waker>,
}

/// The future of a task, until it is over, or dropped.
pub(super) struct Task {
    runtime: Weak<Runtime>,
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// A task of the runtime that runs the simulation.
struct Running {
    runtime: Arc<Runtime>,
    task: Arc<Task>,
}

impl Runtime {
    pub fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            id: RuntimeId::Simulated(number),
            state: Mutex::default(),
        })
    }

    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> Arc<Task> {
        self.spawn_task(task).0
    }

    fn spawn_task(
        self: &Arc<Self>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> (Arc<Task>, JoinHandle<()>) {
        let task = Arc::new(Task {
            runtime: Arc::downgrade(self),
            future: Mutex::new(Some(Box::pin(task))),
        });
        let mut state = self.state();
        state.tasks.retain(|task| task.strong_count() > 0);
        state.tasks.push(Arc::downgrade(&task));
        if state.has_ended {
            drop(state);
            task.end();
        }
        let running = Running {
            runtime: Arc::clone(self),
            task: Arc::clone(&task),
        };
        let handle = tokio::spawn(running);
        (task, handle)
    }

    /// What this does is done in a task of the runtime.
    pub fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _entered = Entered(CURRENT.replace(Some(Arc::clone(self))));
        work()
    }

    pub fn pause(&self) {
        self.state().pauses += 1;
    }

    pub fn resume(&self) {
        let mut state = self.state();
        state.pauses = state.pauses.saturating_sub(1);
        if state.pauses == 0 {
            state.woken.drain(..).for_each(Waker::wake);
        }
    }

    /// Whatever paused it.
    pub fn resume_all(&self) {
        self.state().pauses = 1;
        self.resume();
    }

    pub fn is_paused(&self) -> bool {
        self.state().pauses > 0
    }

    /// All its tasks are dropped.
    pub fn end(&self) {
        let tasks = {
            let mut state = self.state();
            state.has_ended = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().filter_map(Weak::upgrade).for_each(|task| task.end());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// Drops its future, as its runtime would.
    pub fn end(&self) {
        let future = self.take();
        match self.runtime.upgrade() {
            Some(runtime) => runtime.within(|| drop(future)),
            None => drop(future),
        }
    }

    pub fn is_over(&self) -> bool {
        self.future
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    fn take(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.runtime.state();
            if state.pauses > 0 {
                state.woken.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        let Some(mut future) = self.task.take() else {
            return Poll::Ready(());
        };
        self.runtime.within(|| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                *self.task.future.lock().unwrap_or_else(PoisonError::into_inner) = Some(future);
            }
            polled
        })
    }
}

/// Restores the runtime that was current before.
struct Entered(Option<Arc<Runtime>>);

impl Drop for Entered {
    fn drop(&mut self) {
        if std::thread::panicking() {
            HAS_PANICKED.set(true);
        }
        CURRENT.set(self.0.take());
    }
}
