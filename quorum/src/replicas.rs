use std::time::Duration;

use redis::cmd;

use crate::command::{Grant, Milliseconds};
use crate::connect::PooledConnection;
use crate::error::Error;
use crate::identity::RequestIdentity;

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
    /// Waits until the servers have a grant that this connection received, if `rewrites` is given after writing the
    /// holder again.
    pub async fn confirm(
        self,
        connection: &PooledConnection,
        grant: &Grant,
        rewrites: Option<(&RequestIdentity, Duration)>,
    ) -> Result<(), Error> {
        if let Some((identity, lease)) = rewrites {
            force_write(connection, grant, identity, lease).await?;
        }
        let (needed, acknowledged) = self.acknowledge(connection).await?;
        if acknowledged < needed {
            return Err(Error::Unreplicated { needed, acknowledged });
        }
        Ok(())
    }

    /// How many servers must have what was written on this connection, and how many have it in time. WAIT and WAITAOF
    /// ignore other connections.
    async fn acknowledge(self, connection: &PooledConnection) -> Result<(u32, u32), Error> {
        let needed = self.needed;
        // 0 would mean no timeout.
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        if !self.fsynced {
            let wait = cmd("WAIT").arg(needed).arg(timeout_ms).take();
            return Ok((needed, connection.query(&wait).await?));
        }
        let wait = cmd("WAITAOF").arg(1).arg(needed).arg(timeout_ms).take();
        match connection.query::<(u32, u32)>(&wait).await {
            Ok((primary, replicas)) => Ok((needed.saturating_add(1), primary + replicas.min(needed))),
            Err(error) if error.is_unknown_command("waitaof") => Err(Error::Invalid(
                "the server does not have WAITAOF, which `fsynced` needs: update it to Redis 7.2 or Valkey, or use \
                 `replicas`"
                    .into(),
            )),
            Err(error) => Err(error),
        }
    }
}

/// Has the server replicate the holder again, after this connection's last write.
///
/// WAIT and WAITAOF cover what was written on their own connection. A repeated request writes nothing where the
/// first one was granted, so WAIT would return at once. An EXTEND writes the holder if it makes the lease longer.
async fn force_write(
    connection: &PooledConnection,
    grant: &Grant,
    identity: &RequestIdentity,
    lease: Duration,
) -> Result<(), Error> {
    // The reply rounds the remaining lease down.
    const ROUNDING: Duration = Duration::from_millis(1);
    let mut lease = lease.max(grant.lease + ROUNDING);
    loop {
        let command = identity.extend(lease, grant.fence);
        let remaining = connection.query(&command).await;
        match remaining {
            Ok(Milliseconds(remaining)) if remaining <= lease => return Ok(()),
            // Another hold of this owner was extended meanwhile, to a longer lease.
            Ok(Milliseconds(remaining)) => lease = remaining + ROUNDING,
            Err(error) => return Err(error.reported_loss().map_or(error, Error::Lost)),
        }
    }
}
