//! Waiting for the loss of a lock.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::LostReason;

/// Timers do not count suspend: after it, a loss is noticed within this time.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// How long a lock is held for certain, or why it is lost.
pub(crate) type LeaseStatus = Result<Duration, LostReason>;

/// Resolves when a lock is lost. The renewal thread cancels the token; in case a hook of the application blocks that
/// thread, the clock is checked, too.
pub(crate) async fn lost(token: &CancellationToken, status: impl Fn() -> LeaseStatus) -> LostReason {
    loop {
        match status() {
            Err(reason) => {
                token.cancel();
                return reason;
            }
            Ok(remaining) => {
                if timeout(poll_interval(remaining), token.cancelled()).await.is_ok() {
                    return reason_of(status());
                }
            }
        }
    }
}

/// Why a lock is lost whose token was cancelled.
pub(crate) fn reason_of(status: LeaseStatus) -> LostReason {
    status.err().unwrap_or(LostReason::LeaseExpired)
}

pub(crate) fn poll_interval(remaining: Duration) -> Duration {
    remaining.min(MAX_SLEEP)
}
