//! Handing a hold over to another process.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::clock::BootInstant;
use crate::command::Grant;
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;
use crate::renewal::SharedHold;

/// What identifies a hold: see [`Guard::into_parts`]. Serialize it field by field. Whoever has it can extend and release
/// the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardParts {
    /// The key of the lock.
    pub key: Vec<u8>,
    /// The owner, 1 to 512 bytes.
    pub owner: Owner,
    /// The fencing token.
    pub fence: u64,
    /// How many holds the owner had when this one was granted.
    pub holds: u64,
    /// The request id, 32 hexadecimal digits.
    pub request_id: [u8; 32],
    /// The length of a lease.
    pub lease: Duration,
}

impl GuardParts {
    pub(crate) fn of(held: &SharedHold) -> Self {
        Self {
            key: held.identity.key.to_vec(),
            owner: held.identity.owner.clone(),
            fence: held.fence(),
            holds: held.holds,
            request_id: held.identity.id,
            lease: held.with(|hold| hold.lease()),
        }
    }
}

/// Renews the lease of a hold, and makes a guard of it.
pub(crate) async fn adopt(client: &Arc<Client>, parts: GuardParts) -> Result<Guard, Error> {
    client.warm_up();
    let identity = RequestIdentity {
        key: parts.key.into(),
        owner: parts.owner,
        id: parts.request_id,
    };
    let command = identity.extend(parts.lease, parts.fence);
    let sent_at = BootInstant::now();
    let reply = client.link().query::<u64>(&command).await;
    let lease = reply.map(Duration::from_millis).map_err(|error| {
        let lost = LostReason::reported_by(&error).map(Error::Lost);
        lost.unwrap_or_else(|| error.at_server(client.address()))
    })?;
    let grant = Grant {
        fence: parts.fence,
        holds: parts.holds,
        lease,
        waited: Duration::ZERO,
    };
    let options = Options {
        lease: parts.lease,
        ..Options::default()
    };
    let now = BootInstant::now();
    let hold = Hold::granted(options.plan(now), sent_at, grant.waited, lease);
    let lost_reason = hold.lost_reason(now);
    // Whether the request was repeated is not known here.
    let held = SharedHold::new(client.renewal_context(), identity, grant, true, hold);
    let guard = Guard::new(Arc::clone(client), held);
    match lost_reason {
        None => Ok(guard),
        Some(reason) => Err(Error::Lost(reason)),
    }
}
