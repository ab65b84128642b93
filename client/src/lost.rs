//! Waiting for the loss of a lock.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::hold::Loss;

/// Timers do not count suspend: after it, a loss is noticed within this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// What is known of a lock: for how long it is certainly held, or why it is lost.
pub(crate) type Outlook = Result<Duration, Loss>;

/// Waits until a lock is lost. The thread in the background tells it by the token; but it may be held up, by a hook of
/// the application for instance, so the clock is looked at as well.
pub(crate) async fn lost(token: &CancellationToken, look: impl Fn() -> Outlook) -> Loss {
    loop {
        match look() {
            Err(loss) => {
                token.cancel();
                return loss;
            }
            Ok(remaining) => {
                if timeout(nap(remaining), token.cancelled()).await.is_ok() {
                    return told(look());
                }
            }
        }
    }
}

/// The loss that a token tells of.
pub(crate) fn told(outlook: Outlook) -> Loss {
    outlook.err().unwrap_or(Loss::LeaseEnded)
}

/// So long nobody has to look at the clock.
pub(crate) fn nap(remaining: Duration) -> Duration {
    remaining.min(LONGEST_NAP)
}
