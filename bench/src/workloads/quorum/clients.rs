//! Clients of one process, and the runtime that they share if their locks are asynchronous.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;
use crate::implementations::Client;
use crate::implementations::async_lock::{AsyncLock, Blocking};

pub type Clients = Vec<Box<dyn Client>>;

pub fn runtime() -> Result<Arc<Runtime>> {
    Ok(Arc::new(
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?,
    ))
}

pub fn clients<L: AsyncLock>(
    keys: &[String],
    runtime: &Arc<Runtime>,
    mut lock: impl FnMut(&str) -> L,
) -> Result<Clients> {
    let client = |key: &String| -> Box<dyn Client> { Box::new(Blocking::new(runtime, lock(key))) };
    Ok(keys.iter().map(client).collect())
}
