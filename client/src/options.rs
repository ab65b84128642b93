use std::time::Duration;

use crate::identity::Limit;

/// How a lock is to be acquired, on one server or on several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub limit: Limit,
    pub lease: Duration,
    pub wait: Duration,
    pub renews: bool,
    pub max_hold: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: Limit::Mutex,
            lease: Duration::from_secs(30),
            wait: Duration::from_secs(30),
            renews: true,
            max_hold: None,
        }
    }
}

impl Options {
    /// For how long to wait; `None` is without limit.
    pub fn wait_limit(&self) -> Option<Duration> {
        // Longer than any server's clock runs is without limit.
        Some(self.wait).filter(|&wait| wait < Duration::from_secs(1 << 40))
    }
}
