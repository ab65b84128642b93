//! Connections, as clients see them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// The client's end of a connection.
#[derive(Default)]
pub(super) struct Pipe {
    pub sent: Vec<u8>,
    pub received: Vec<u8>,
    /// Nothing arrives any more.
    pub is_cut: bool,
    /// The client has closed it.
    pub is_closed: bool,
    reader: Option<Waker>,
}

pub(super) struct Stream {
    pub pipe: Arc<Mutex<Pipe>>,
    pub wakeup: Arc<Notify>,
}

pub(super) fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipe {
    pub fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.pipe);
        let length = pipe.received.len().min(buffer.remaining());
        if length == 0 && !pipe.is_cut {
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        buffer.put_slice(&pipe.received[..length]);
        pipe.received.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.pipe);
        if pipe.is_cut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        pipe.sent.extend_from_slice(bytes);
        self.wakeup.notify_one();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.pipe).is_closed = true;
        self.wakeup.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.pipe).is_closed = true;
        self.wakeup.notify_one();
    }
}
