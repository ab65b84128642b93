use std::io;
use std::time::Duration;

use redis::{RedisError, RedisResult, ServerErrorKind};
use tokio::time::timeout;

use crate::error::Error;

/// Limits the time that redis-rs takes for all it tries.
pub(super) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// Only the address of a cluster leads to the node that MOVED names.
pub(super) fn map_error(error: RedisError, is_cluster: bool) -> Error {
    if !is_cluster && error.code() == Some("MOVED") {
        let text = "the server is a cluster node, and another node serves this lock: use the address of the \
                    cluster, redis-cluster://host:port";
        return Error::Invalid(text.into());
    }
    error.into()
}

/// Whether to replace the connection that gave this error: it is lost, unresponsive, or leads to a server that is no
/// primary any more.
pub(super) fn should_reconnect(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || matches!(
            error.kind(),
            redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}
