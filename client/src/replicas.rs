//! Grants that replicas must acknowledge: WAIT and WAITAOF, on connections of their own, because they block.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, cmd};
use tokio::time::sleep;

use crate::clock::BootInstant;
use crate::command::Milliseconds;
use crate::error::Error;
use crate::request::{Acknowledgement, Held};
use crate::server::{Connection, Server};
use crate::session::Session;
use crate::stage::Stage;

/// Connections that no WAIT blocks at the moment.
#[derive(Clone, Default)]
pub(crate) struct WaitConnections(Arc<Mutex<Vec<Connection>>>);

/// The reply rounds the remaining lease down.
const ROUNDING: Duration = Duration::from_millis(1);
/// Before another connection is tried.
const PAUSE: Duration = Duration::from_millis(10);

impl WaitConnections {
    /// Waits until the replicas have a grant. When a connection is lost, it is asked again on another.
    pub async fn confirm(
        &self,
        server: &Server,
        held: &Held,
        asked: Acknowledgement,
        response_timeout: Duration,
    ) -> Result<(), Error> {
        let until = BootInstant::now() + asked.timeout;
        loop {
            let outcome = self.try_confirm(server, held, asked, response_timeout).await;
            match outcome {
                Err(error) if error.is_ambiguous() && BootInstant::now() < until => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    async fn try_confirm(
        &self,
        server: &Server,
        held: &Held,
        asked: Acknowledgement,
        response_timeout: Duration,
    ) -> Result<(), Error> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let read_timeout = asked.timeout.saturating_add(response_timeout);
        let mut connection = match free {
            Some(connection) => connection,
            None => server.connect_reader(response_timeout, read_timeout).await?,
        };
        write_again(&mut connection, held).await?;
        let acknowledged = acknowledge(&mut connection, held, asked).await?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        let needed = asked.replicas.saturating_add(u32::from(asked.fsynced));
        match acknowledged >= needed {
            true => Ok(()),
            false => Err(Error::Unreplicated { needed, acknowledged }),
        }
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
        match Milliseconds::from_redis_value(remaining).map_err(RedisError::from)? {
            Milliseconds(remaining) if remaining <= lease => return Ok(()),
            // The server had a longer one: by another hold of this owner, or because the grant was slow.
            Milliseconds(remaining) => lease = remaining + ROUNDING,
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
        let reply = connection.query_server_of(&wait, &held.identity.key).await?;
        return Ok(u32::from_redis_value(reply).map_err(RedisError::from)?);
    }
    let wait = cmd("WAITAOF").arg(1).arg(needed).arg(timeout_ms).take();
    match connection.query_server_of(&wait, &held.identity.key).await {
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

impl Session {
    /// The replicas have a grant, or do not have it in time.
    pub fn on_acknowledged(&mut self, number: u64, outcome: Result<(), Error>, now: BootInstant) {
        if let Err(error) = outcome {
            self.refuse(number, Err(error), None, now);
        } else if let Some(Stage::Held(holding)) = self.entries.get_mut(&number).map(|entry| &mut entry.stage)
            && let Some((reply, begun)) = holding.unconfirmed.take()
        {
            let held = Arc::clone(&holding.held);
            self.hand_over(&held, reply, begun, now);
        }
    }
}
