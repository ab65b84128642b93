use std::sync::Arc;

use crate::options::Options;

/// A lock to acquire, and how.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub key: Arc<[u8]>,
    pub options: Options,
    /// Whether it waits while others hold the lock.
    pub waits: bool,
}
