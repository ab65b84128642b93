//! Entering the doorway of a lock.

use std::sync::Arc;

use super::ask::ask;
use super::doorway::Doorway;
use super::request::Request;
use super::servers::Servers;
use crate::acquire::AcquireRequest;
use crate::error::Error;
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;
use crate::owner::Owner;

/// Added to the key. Permissions for keys must include it.
const SUFFIX: &[u8] = b":doorway";

/// Waits for the doorway of the lock, on this server, and enters it.
pub(super) async fn enter(
    servers: &Arc<Servers>,
    server: usize,
    request: &Request,
) -> Result<Doorway, Error> {
    let turn = servers.turns.turn(&request.key).await;
    let key = [&request.key, SUFFIX].concat().into();
    let request = AcquireRequest {
        identity: RequestIdentity::new(key, Owner::unique()),
        options: Options {
            limit: Limit::Mutex,
            // A client that is gone delays the others for this time.
            lease: servers.node_timeout.min(request.options.lease),
            max_hold: None,
            renews: false,
            ..request.options
        },
        replicas: None,
        min_fence: None,
    };
    let guard = ask(servers, server, request, true, None).await?;
    Ok(Doorway::new(guard, Arc::clone(servers), turn))
}
