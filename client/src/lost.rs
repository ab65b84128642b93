//! Waiting for the loss of a lock.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::hold::LostReason;

/// Timers do not count suspend: after it, a loss is noticed within this.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// What is known of a lock: for how long it is certainly held, or why it is lost.
pub(crate) type LeaseStatus = Result<Duration, LostReason>;

/// Waits until a lock is lost. The thread in the background tells it by the token; but it may be held up, by a hook of
/// the application for instance, so the clock is looked at as well.
pub(crate) async fn lost(token: &CancellationToken, look: impl Fn() -> LeaseStatus) -> LostReason {
    loop {
        match look() {
            Err(reason) => {
                token.cancel();
                return reason;
            }
            Ok(remaining) => {
                if timeout(poll_interval(remaining), token.cancelled()).await.is_ok() {
                    return reason_of(look());
                }
            }
        }
    }
}

/// The loss that a token tells of.
pub(crate) fn reason_of(lease_status: LeaseStatus) -> LostReason {
    lease_status.err().unwrap_or(LostReason::LeaseExpired)
}

/// So long nobody has to look at the clock.
pub(crate) fn poll_interval(remaining: Duration) -> Duration {
    remaining.min(MAX_SLEEP)
}
