use std::time::Duration;

use redis::cmd;

use crate::connect::Seat;
use crate::error::Error;

/// How many replicas must have a lock before it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub needed: u32,
    pub timeout: Duration,
}

impl Replicas {
    /// Waits until the replicas have what was written over this connection. WAIT looks at nothing else: on
    /// another connection it answers at once.
    pub async fn acknowledge(self, seat: &Seat) -> Result<(), Error> {
        // 0 would be without limit.
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut wait = cmd("WAIT");
        wait.arg(self.needed).arg(timeout_ms);
        let acknowledged: u32 = seat.query(&wait).await?;
        if acknowledged < self.needed {
            return Err(Error::Unreplicated {
                needed: self.needed,
                acknowledged,
            });
        }
        Ok(())
    }
}
