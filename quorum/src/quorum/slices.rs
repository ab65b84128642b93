//! Waiting in a server's queue in slices, so that a client that is gone leaves the queue soon.
//!
//! Before a slice ends, the same request is sent again on another connection. It takes the place of the first one in the
//! queue. Of any number of clients that are gone without a sign, only the one at the head then costs a lease.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redis::Cmd;
use tokio::time::timeout;

use super::doorway::Doorway;
use crate::acquire::{Attempt, Outcome};
use crate::clock::BootInstant;
use crate::command::Grant;
use crate::connect::{BlockingPool, PooledConnection};
use crate::error::Error;
use crate::identity::Block;

type Reply = Pin<Box<dyn Future<Output = Result<Option<Grant>, Error>> + Send>>;

/// A request in the queue.
struct Slice {
    connection: PooledConnection,
    sent_at: BootInstant,
    reply: Reply,
}

/// Waits until the request is granted or fails. Leaves the doorway as soon as the request is handed to the runtime.
pub(super) async fn wait_in_slices(attempt: &mut Attempt, doorway: Option<Arc<Doorway>>) -> Outcome {
    let was_lost = attempt.sent.is_lost;
    attempt.is_repeated |= was_lost;
    let mut slice = Slice::begin(attempt).await?;
    let reply = slice.reply.as_mut().now_or_never();
    if let Some(doorway) = doorway {
        doorway.leave();
    }
    if let Some(reply) = reply {
        return end(attempt, slice, reply);
    }
    loop {
        attempt.sent.connection = Some(slice.connection.clone());
        if let Ok(reply) = timeout(attempt.request.options.lease / 3, &mut slice.reply).await {
            return end(attempt, slice, reply);
        }
        let Ok(mut next) = Slice::begin(attempt).await else {
            let reply = slice.reply.as_mut().await;
            return end(attempt, slice, reply);
        };
        // If this future is dropped meanwhile, requests may be on both connections.
        attempt.sent.is_lost = true;
        tokio::select! {
            // It was replaced, or granted just before: then the other request gets the same reply.
            replaced = &mut slice.reply => {
                attempt.client.pool.checkin(slice.connection, replaced.err().as_ref());
                attempt.sent.is_lost = was_lost;
            }
            reply = &mut next.reply => {
                return end(attempt, next, reply);
            }
        }
        slice = next;
    }
}

/// How long the server keeps the request in the queue. Shorter than a lease: while the lease of the one at the head runs
/// out, those behind it that are gone as well leave.
fn length(attempt: &Attempt) -> Duration {
    attempt.request.options.lease * 3 / 4
}

impl Slice {
    async fn begin(attempt: &Attempt) -> Result<Self, Error> {
        let pool = &attempt.client.pool;
        let connection = pool.checkout(&attempt.request.identity.key).await?;
        let sent_at = BootInstant::now();
        let command = attempt.command(Block::Until(Some(sent_at + length(attempt))));
        let reply = send(Arc::clone(pool), connection.clone(), command);
        Ok(Self {
            connection,
            sent_at,
            reply,
        })
    }
}

fn send(pool: Arc<BlockingPool>, connection: PooledConnection, command: Cmd) -> Reply {
    Box::pin(async move { pool.query_blocking(&connection, &command).await })
}

fn end(attempt: &mut Attempt, slice: Slice, reply: Result<Option<Grant>, Error>) -> Outcome {
    // Its clones are dropped, so that a connection that failed is closed.
    attempt.sent.connection = None;
    let pool = &attempt.client.pool;
    pool.checkin(slice.connection, reply.as_ref().err());
    attempt.settle(slice.sent_at, reply)
}
