//! Grants that replicas must acknowledge: WAIT and WAITAOF, on connections of their own, because they block.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, cmd};
use tokio::time::sleep;

use crate::command::{Acknowledgement, milliseconds};
use crate::error::Error;
use crate::hold::BootInstant;
use crate::server::Connection;
use crate::session::Session;
use crate::table::Held;

/// The reply rounds the remaining lease down.
const ROUNDING: Duration = Duration::from_millis(1);
/// Before another connection is tried.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until the replicas have a grant. When a connection is lost, it is asked again on another.
pub(crate) async fn confirm(
    session: Arc<Session>,
    held: Arc<Held>,
    asked: Acknowledgement,
) -> Result<(), Error> {
    let until = BootInstant::now() + asked.timeout;
    loop {
        match try_confirm(&session, &held, asked).await {
            Err(error) if error.is_ambiguous() && BootInstant::now() < until => sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

async fn try_confirm(session: &Session, held: &Held, asked: Acknowledgement) -> Result<(), Error> {
    let (links, connections) = (&session.links, &session.wait_connections);
    let free = connections.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let read_timeout = asked.timeout.saturating_add(links.timeout());
    let mut connection = match free {
        Some(connection) => connection,
        None => {
            links
                .server()
                .connect_reader(links.timeout(), read_timeout)
                .await?
        }
    };
    write_again(&mut connection, held).await?;
    let acknowledged = acknowledge(&mut connection, held, asked).await?;
    connections
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(connection);
    let needed = asked.replicas.saturating_add(u32::from(asked.fsynced));
    match acknowledged >= needed {
        true => Ok(()),
        false => Err(Error::Unreplicated { needed, acknowledged }),
    }
}

/// Has the server write the holder on this connection: WAIT and WAITAOF cover what was written on their own one. An
/// EXTEND writes it if it makes the lease longer.
async fn write_again(connection: &mut Connection, held: &Held) -> Result<(), Error> {
    let mut lease = held.hold().remaining(BootInstant::now()) + ROUNDING;
    loop {
        // The safe deadline is earlier than that of the server, by at most this share.
        lease = lease.saturating_add(lease / 500).saturating_add(2 * ROUNDING);
        let remaining = connection.query(&held.extend(lease)).await?;
        match milliseconds(&remaining).ok_or_else(Error::unreadable)? {
            remaining if remaining <= lease => return Ok(()),
            // The server had a longer one: by another hold of this owner, or because the grant was slow.
            remaining => lease = remaining + ROUNDING,
        }
    }
}

/// How many servers have what was written on this connection.
async fn acknowledge(connection: &mut Connection, held: &Held, asked: Acknowledgement) -> Result<u32, Error> {
    let needed = asked.replicas;
    // 0 would mean no timeout.
    let timeout_ms = u64::try_from(asked.timeout.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    if !asked.fsynced {
        let wait = cmd("WAIT").arg(needed).arg(timeout_ms).take();
        let reply = connection.query_server_of(&wait, &held.request.key).await?;
        return Ok(u32::from_redis_value(reply).map_err(RedisError::from)?);
    }
    let wait = cmd("WAITAOF").arg(1).arg(needed).arg(timeout_ms).take();
    match connection.query_server_of(&wait, &held.request.key).await {
        Ok(reply) => {
            let (primary, replicas) = <(u32, u32)>::from_redis_value(reply).map_err(RedisError::from)?;
            Ok(primary + replicas.min(needed))
        }
        Err(error) if error.to_string().contains("unknown command") => Err(Error::Invalid(
            "the server does not have WAITAOF, which `fsynced` needs: update it to Redis 7.2 or Valkey, or use \
             `replicas`"
                .into(),
        )),
        Err(error) => Err(error.into()),
    }
}
