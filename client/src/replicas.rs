use std::time::Duration;

use redis::cmd;

use crate::connect::PooledConnection;
use crate::error::Error;

/// What must acknowledge a grant before it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    /// This many replicas.
    pub needed: u32,
    /// Once it is fsynced to the AOF, there and on the primary.
    pub fsynced: bool,
    pub timeout: Duration,
}

impl Replicas {
    /// Waits until the servers have what was written on this connection. WAIT and WAITAOF ignore other connections.
    pub async fn acknowledge(self, connection: &PooledConnection) -> Result<(), Error> {
        // 0 would mean no timeout.
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let (needed, acknowledged) = if self.fsynced {
            let mut wait = cmd("WAITAOF");
            wait.arg(1).arg(self.needed).arg(timeout_ms);
            let answer: Result<(u32, u32), Error> = connection.query(&wait).await;
            let (primary, replicas) = answer.map_err(explain)?;
            (self.needed.saturating_add(1), primary + replicas.min(self.needed))
        } else {
            let mut wait = cmd("WAIT");
            wait.arg(self.needed).arg(timeout_ms);
            (self.needed, connection.query(&wait).await?)
        };
        if acknowledged < needed {
            return Err(Error::Unreplicated { needed, acknowledged });
        }
        Ok(())
    }
}

fn explain(error: Error) -> Error {
    if error.is_unknown_command("waitaof") {
        return Error::Invalid(
            "the server does not have WAITAOF, which `fsynced` needs: update it to Redis 7.2 or Valkey, or use \
             `replicas`"
                .into(),
        );
    }
    error
}
