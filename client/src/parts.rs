//! Handing a hold over to another process.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::clock::BootInstant;
use crate::command::{Grant, Milliseconds};
use crate::error::Error;
use crate::guard::Guard;
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;

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
    pub(crate) fn of(held: &crate::renewal::SharedHold) -> Self {
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
    let reply = client.link.query(&command).await;
    let Milliseconds(remaining) = reply.map_err(|error| match error.reported_loss() {
        Some(reason) => Error::Lost(reason),
        None => error.at_server(client.address()),
    })?;
    let GuardParts {
        fence, holds, lease, ..
    } = parts;
    let grant = Grant {
        fence,
        holds,
        lease: remaining,
        waited: Duration::ZERO,
    };
    let options = Options {
        lease,
        ..Options::default()
    };
    // Whether the request was repeated is not known here.
    Guard::granted(client, identity, grant, sent_at, &options, true)
}
