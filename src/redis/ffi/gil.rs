//! The proof that the server waits for this module, and what only that proof opens.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// Whoever has one runs while the server does nothing else. It is neither `Copy` nor `Send`, and only the callbacks
/// of this directory make one.
pub struct Gil<'a>(PhantomData<(&'a mut (), *mut ())>);

impl Gil<'_> {
    /// # Safety
    /// The server is calling the module, on its main thread or on one that has its lock, and no reference out of a
    /// [`GilCell`] is in use.
    pub(super) unsafe fn assume() -> Self {
        Self(PhantomData)
    }
}

static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// This is the server's main thread. In a child process that it forks, its copy is too.
pub(super) fn note_main_thread() {
    MAIN_THREAD.get_or_init(|| thread::current().id());
}

/// Whether this is a thread that the server waits for, and not one that writes a snapshot beside it.
pub(super) fn is_main_thread() -> bool {
    MAIN_THREAD.get() == Some(&thread::current().id())
}

/// A value that is reached only through a [`Gil`]. The first use makes it.
///
/// The reference borrows the `Gil` for as long as it lives. Every function that can make the server call the module
/// back borrows the `Gil` too, as part of a [`Ctx`](crate::redis::Ctx) or of an open key. So no callback can find the
/// value in use: the compiler refuses such a program.
pub struct GilCell<T>(UnsafeCell<Option<T>>);

// SAFETY: a `Gil` exists on one thread at a time: the server calls commands, events, timers and callbacks of a data
// type on its main thread, or on another that has its lock, which hands over all that was written. `free`, `save` and
// INFO for a crash report, which can run beside them, get no `Gil` there. The value need not be `Send`: what it shares (an `Rc`) stays
// behind the `Gil` too, since a value of a data type, which another thread may free, is `Send` and so has no part in it.
unsafe impl<T: 'static> Sync for GilCell<T> {}

impl<T: Default + 'static> GilCell<T> {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    #[inline]
    pub fn get<'g>(&'static self, _: &'g mut Gil<'_>) -> &'g mut T {
        // SAFETY: the only `Gil` there is stays borrowed for as long as the reference.
        match unsafe { &mut *self.0.get() } {
            Some(value) => value,
            none => Self::make(none),
        }
    }

    /// Apart, so that the code of every use stays small.
    #[cold]
    #[inline(never)]
    fn make(none: &mut Option<T>) -> &mut T {
        none.get_or_insert_default()
    }
}
