//! A write that leaves a lock as it is.
//!
//! WAIT and WAITAOF wait for what was written over their own connection. A request that is repeated after a lost answer
//! writes nothing when the server had carried it out, over the connection that is lost: then they would wait for
//! nothing, and all replicas would count. So a hold of another name is taken in addition, which always writes, and
//! given back.

use crate::acquire::AcquireRequest;
use crate::command::Grant;
use crate::connect::PooledConnection;
use crate::error::Error;
use crate::hold::LostReason;
use crate::identity::{Block, RequestIdentity};

/// The names of holds that are taken only to be given back, as long as it is not certain that they are gone.
pub(crate) type Passing = Vec<RequestIdentity>;

/// Writes, over this connection, to a lock that was granted: the grant as it is then. The hold that was granted stays:
/// the requests for it that may still be under way find it, and change nothing.
pub(crate) async fn touch(
    request: &AcquireRequest,
    passing: &mut Passing,
    granted: Grant,
    seat: &PooledConnection,
) -> Result<Grant, Error> {
    let identity = request.identity.with_new_id();
    let command = identity.acquire(request.options.lease, request.options.limit, Block::No);
    passing.push(identity);
    let entered: Option<Grant> = seat.query(&command).await?;
    let mut holds = 0;
    for identity in &*passing {
        holds = seat.query(&identity.withdraw()).await?;
    }
    // Its requests have been answered. Those of earlier ones may be under way yet, over connections that are lost.
    passing.pop();
    let was_held = entered.is_some_and(|entered| entered.fence == granted.fence);
    if was_held && holds > 0 {
        Ok(Grant { holds, ..granted })
    } else {
        Err(Error::Lost(LostReason::LeaseExpired))
    }
}
