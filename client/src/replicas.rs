use std::time::Duration;

use redis::cmd;

use crate::connect::PooledConnection;
use crate::error::Error;

/// Where a lock must be before it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    /// On so many replicas.
    pub needed: u32,
    /// There, and on the primary, in the log on disk.
    pub fsynced: bool,
    pub timeout: Duration,
}

impl Replicas {
    /// Waits until the servers have what was written over this connection. WAIT and WAITAOF look at nothing else:
    /// on another connection they answer at once.
    pub async fn acknowledge(self, seat: &PooledConnection) -> Result<(), Error> {
        // 0 would be without limit.
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let (needed, acknowledged) = if self.fsynced {
            let mut wait = cmd("WAITAOF");
            wait.arg(1).arg(self.needed).arg(timeout_ms);
            let answer: Result<(u32, u32), Error> = seat.query(&wait).await;
            let (primary, replicas) = answer.map_err(explained)?;
            (self.needed.saturating_add(1), primary + replicas.min(self.needed))
        } else {
            let mut wait = cmd("WAIT");
            wait.arg(self.needed).arg(timeout_ms);
            (self.needed, seat.query(&wait).await?)
        };
        if acknowledged < needed {
            return Err(Error::Unreplicated { needed, acknowledged });
        }
        Ok(())
    }
}

fn explained(error: Error) -> Error {
    if error.is_unknown_command("waitaof") {
        return Error::Invalid(
            "this server cannot tell what is on disk, for it does not have WAITAOF: update it to Redis 7.2 or Valkey, \
             or ask for `replicas` only"
                .into(),
        );
    }
    error
}
