//! Histories for checkers that others have written: a JSON array of requests, in the order of their replies.
//!
//! ```json
//! {"owner": "w0.1", "key": "door", "port": 7000, "term": 0, "sent": 12, "replied": 48,
//!  "request": {"command": "ACQUIRE", "lease": 400, "limit": 1, "blocks": 100, "reqid": "r1"},
//!  "reply": {"granted": 94070374400001, "holds": 1, "lease": 400}}
//! ```
//!
//! Times are microseconds, leases and timeouts milliseconds, on one monotonic clock; a limit of 0 is SHARED. The reply of a
//! request that may or may not have taken effect is null.

use serde_json::{Value, json};

use crate::history::{Acquire, History, Limit, Op, Reply, Request, Wait};

/// The requests of a history as such an array.
pub fn json(history: &History) -> String {
    let ops = history.ops.iter().map(|op| of_op(op).to_string());
    format!("[\n{}\n]\n", ops.collect::<Vec<_>>().join(",\n"))
}

fn of_op(op: &Op) -> Value {
    json!({
        "owner": op.owner,
        "key": op.key,
        "port": op.server.port,
        "term": op.server.term,
        "sent": op.sent,
        "replied": op.replied,
        "request": of_request(&op.request),
        "reply": of_reply(&op.reply),
    })
}

fn of_request(request: &Request) -> Value {
    match request {
        Request::Acquire(acquire) => of_acquire(acquire),
        Request::Extend { lease_ms, fence } => {
            json!({"command": "EXTEND", "lease": lease_ms, "fence": fence})
        }
        Request::Release { fence, all, reqid } => {
            json!({"command": "RELEASE", "fence": fence, "all": all, "reqid": reqid})
        }
        Request::Push(push) => json!({
            "command": "RPUSH",
            "list": push.list,
            "fence": push.element.fence,
            "number": push.element.number,
        }),
    }
}

fn of_acquire(acquire: &Acquire) -> Value {
    let blocks = match acquire.wait {
        Wait::No => None,
        Wait::Block { timeout_ms } => Some(timeout_ms),
    };
    let limit = match acquire.limit {
        Limit::Of(limit) => limit,
        Limit::Shared => 0,
    };
    json!({
        "command": "ACQUIRE",
        "lease": acquire.lease_ms,
        "limit": limit,
        "blocks": blocks,
        "reqid": acquire.reqid,
    })
}

fn of_reply(reply: &Reply) -> Value {
    match reply {
        Reply::Granted {
            fence,
            holds,
            lease_ms,
            ..
        } => json!({"granted": fence, "holds": holds, "lease": lease_ms}),
        Reply::Null => json!({"nil": true}),
        Reply::Remaining(holds) => json!({"remaining": holds}),
        Reply::Lease(lease_ms) => json!({"lease": lease_ms}),
        Reply::Length(length) => json!({"length": length}),
        Reply::Error(error) => json!({"error": error}),
        Reply::Unexpected(reply) => json!({"unexpected": reply}),
        Reply::Disconnected | Reply::TimedOut => Value::Null,
    }
}
