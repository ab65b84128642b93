//! Acquiring the lock on one of the servers.

use std::sync::Arc;

use tokio::time::timeout;

use super::doorway::Doorway;
use super::servers::Servers;
use super::slices::wait_in_slices;
use crate::acquire::{AcquireRequest, Attempt};
use crate::clock::BootInstant;
use crate::error::Error;
use crate::guard::Guard;

/// Acquires the lock on this server, and waits in its queue if the request may wait. Dropped, the request is cancelled.
/// The doorway is dropped when the request is in the queue, or has failed.
///
/// # Errors
///
/// [`Error::Busy`] if it may not wait. [`Error::Redis`] and others of the server, which is then down or rejects the
/// request.
pub(super) async fn ask(
    servers: &Arc<Servers>,
    server: usize,
    request: AcquireRequest,
    waits: bool,
    doorway: Option<Arc<Doorway>>,
) -> Result<Guard, Error> {
    let watched = servers.watch(server, &request.identity.key);
    let outcome = ask_once_more(servers, server, request, waits, doorway).await;
    watched.end(outcome.is_ok());
    outcome
}

/// Asks again if only a connection was lost.
async fn ask_once_more(
    servers: &Arc<Servers>,
    server: usize,
    request: AcquireRequest,
    waits: bool,
    mut doorway: Option<Arc<Doorway>>,
) -> Result<Guard, Error> {
    let client = &servers.clients[server];
    let key = Arc::clone(&request.identity.key);
    let mut attempt = Attempt::new(client, request);
    let mut blocks = waits && (doorway.is_some() || client.pool.is_contended(&key));
    let mut retried_at = None;
    loop {
        let outcome = if blocks {
            tokio::select! {
                outcome = wait_in_slices(&mut attempt, doorway.take()) => outcome,
                () = servers.until(|health| !health.is_up(server)) => return Err(Error::no_response()),
            }
        } else {
            let sent_at = BootInstant::now();
            let outcome = timeout(servers.node_timeout / 2, attempt.try_once(sent_at)).await;
            outcome.unwrap_or_else(|_| attempt.settle(sent_at, Err(Error::no_response())))
        };
        let error = match outcome {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) if !waits => return Err(Error::Busy),
            Ok(None) => {
                client.pool.on_busy(&key);
                blocks = true;
                continue;
            }
            Err(error) => error,
        };
        // Only the connection may have been lost. Or the reply came after the lease: the next request is another acquisition.
        let may_retry = error.is_transient() || matches!(error, Error::Lost(_));
        let now = BootInstant::now();
        let has_retried = retried_at.is_some_and(|at| now.since(at) < servers.node_timeout);
        if !may_retry || servers.is_down(server, &key, &error).await || has_retried {
            return Err(error);
        }
        retried_at = Some(now);
        blocks = false;
    }
}
