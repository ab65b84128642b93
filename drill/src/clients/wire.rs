//! Requests and replies on the wire.

use redis::{RedisError, Value};

use crate::history::{GUARDED, Reply, Request};

/// The arguments of a command on the wire.
pub fn command_args(key: &str, owner: &str, request: &Request) -> Vec<String> {
    let text = request.to_string();
    let mut args = text.split_whitespace().map(str::to_owned);
    if matches!(request, Request::Push(push) if !push.list.ends_with(GUARDED)) {
        return args.collect();
    }
    let verb = args.next().unwrap_or_default();
    let name = [format!("DLOCK.{verb}"), key.to_owned(), owner.to_owned()];
    name.into_iter().chain(args).collect()
}

/// Converts a value, which is unexpected if its type does not fit the request.
pub fn parse_reply(request: &Request, value: Value) -> Reply {
    match (request, value) {
        (_, Value::ServerError(error)) => Reply::Error(format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        )),
        (Request::Acquire(_), Value::Nil) => Reply::Null,
        (Request::Acquire(_), Value::Array(values)) => grant(&values),
        (Request::Extend { .. }, Value::Int(ms @ 0..)) => Reply::Lease(ms.unsigned_abs()),
        (Request::Push(_), Value::Int(length @ 0..)) => Reply::Length(length.unsigned_abs()),
        (Request::Release { .. }, Value::Int(left @ 0..)) => Reply::Remaining(left.unsigned_abs()),
        (_, other) => Reply::Unexpected(format!("{other:?}")),
    }
}

/// Why there is no reply.
pub fn no_reply(error: &RedisError) -> Reply {
    if error.is_timeout() {
        Reply::TimedOut
    } else if error.is_io_error() {
        Reply::Disconnected
    } else {
        Reply::Unexpected(error.to_string())
    }
}

fn grant(values: &[Value]) -> Reply {
    let numbers: Vec<u64> = values
        .iter()
        .filter_map(|value| match value {
            Value::Int(number @ 0..) => Some(number.unsigned_abs()),
            _ => None,
        })
        .collect();
    match *numbers.as_slice() {
        [fence, holds, lease_ms, waited_ms] if values.len() == 4 => Reply::Granted {
            fence,
            holds,
            lease_ms,
            waited_ms,
        },
        _ => Reply::Unexpected(format!("{values:?}")),
    }
}
