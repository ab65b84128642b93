//! Answers, and errors that may be among them.

use crate::history::Reply;

/// Errors that a correct client may get. All others are violations.
const POSSIBLE_ERRORS: [&str; 13] = [
    "NOINBOX",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNBLOCKED",
    "READONLY",
    "MASTERDOWN",
    "LOADING",
    "GRACE",
    "NOTHELD",
    "NOTOWNER",
    "STALE",
];

/// An answer to a request of this process.
pub struct Answer {
    pub id: u64,
    pub reqid: String,
    pub key: String,
    pub owner: String,
    /// As the reply to the request. `None`: withdrawn.
    pub reply: Option<Reply>,
}

impl Answer {
    /// Parses `granted id key owner fence holds lease-ms queued-ms` and the like. An unknown kind is an error here.
    pub fn parse(words: &[String], process: &str, waited_ms: u64) -> Option<Self> {
        let [kind, reqid, key, owner, rest @ ..] = words else {
            return None;
        };
        let numbers: Option<Vec<u64>> = rest.iter().map(|word| word.parse().ok()).collect();
        let reply = match (kind.as_str(), numbers.as_deref()) {
            ("granted", Some(&[fence, holds, lease_ms, _])) => Some(Reply::Granted {
                fence,
                holds,
                lease_ms,
                waited_ms,
            }),
            ("timeout", Some([])) => Some(Reply::Null),
            ("withdrawn", Some([])) => None,
            ("error", _) => Some(possible(Reply::Error(rest.join(" ")))),
            _ => return None,
        };
        let id = owner.strip_prefix(process)?.strip_prefix('.')?.parse().ok()?;
        Some(Self {
            id,
            reqid: reqid.clone(),
            key: key.clone(),
            owner: owner.clone(),
            reply,
        })
    }
}

/// Errors that a correct client never gets are unexpected.
pub fn possible(reply: Reply) -> Reply {
    match reply {
        Reply::Error(error) if !Reply::Error(error.clone()).is_error(&POSSIBLE_ERRORS) => {
            Reply::Unexpected(error)
        }
        reply => reply,
    }
}
