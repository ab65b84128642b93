//! What clients learn that keep their leases by themselves, as requests of a client that records what it sends.

use std::fmt;

use crate::history::{Acquire, Limit, Micros, Op, Recorder, Reply, Request, ServerTerm, Wait};

/// What a client knows about a request at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub owner: String,
    pub key: String,
    pub at: Micros,
    pub kind: Promised,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promised {
    /// The lock, not before `after`. A limit of 0: as one of any number of readers.
    Granted {
        limit: u32,
        after: Micros,
        fence: u64,
        lease_ms: u64,
    },
    /// The rest of a lease.
    Held { lease_ms: u64 },
    /// Nothing more: the client is about to release the lock.
    Released,
    /// A server says that the lock is lost.
    Denied,
    /// No answer, although nothing disturbed the client any more.
    Forgotten,
    /// An error that a correct client does not get.
    Unexpected(String),
}

impl Promise {
    pub fn record(self, recorder: &Recorder) {
        let Self { owner, key, at, kind } = self;
        let (sent, request, reply) = match kind {
            Promised::Granted {
                limit,
                after,
                fence,
                lease_ms,
            } => {
                // Leases are counted from the sending.
                let lease_ms = at.saturating_sub(after) / 1_000 + lease_ms;
                let reply = Reply::Granted {
                    fence,
                    holds: 1,
                    lease_ms,
                    waited_ms: 0,
                };
                (after, acquire(limit, lease_ms), reply)
            }
            Promised::Held { lease_ms } => (at, extend(lease_ms), Reply::Lease(lease_ms)),
            Promised::Released => (at, RELEASE, Reply::Remaining(0)),
            Promised::Denied => (at, extend(0), Reply::Error("NOTHELD".into())),
            Promised::Unexpected(error) => (at, acquire(1, 0), Reply::Unexpected(error)),
            Promised::Forgotten => {
                let what = format!("{owner} was never answered about {key}");
                return recorder.lock().unfinished.push(what);
            }
        };
        recorder.op(Op {
            owner,
            key,
            server: ServerTerm::default(),
            request,
            sent,
            replied: at,
            reply,
        });
    }

    /// Parses what it displays.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let (owner, key, at) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let (kind, rest) = (words.next()?, words.next().unwrap_or_default());
        let numbers: Option<Vec<u64>> = rest.split_whitespace().map(|word| word.parse().ok()).collect();
        let kind = match (kind, numbers.as_deref()) {
            ("granted", Some(&[limit, after, fence, lease_ms])) => Promised::Granted {
                limit: limit.try_into().ok()?,
                after,
                fence,
                lease_ms,
            },
            ("held", Some(&[lease_ms])) => Promised::Held { lease_ms },
            ("released", Some([])) => Promised::Released,
            ("denied", Some([])) => Promised::Denied,
            ("forgotten", Some([])) => Promised::Forgotten,
            ("unexpected", _) => Promised::Unexpected(rest.to_owned()),
            _ => return None,
        };
        Some(Self {
            owner: owner.to_owned(),
            key: key.to_owned(),
            at,
            kind,
        })
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.owner, self.key, self.at)?;
        match &self.kind {
            Promised::Granted {
                limit,
                after,
                fence,
                lease_ms,
            } => write!(f, "granted {limit} {after} {fence} {lease_ms}"),
            Promised::Held { lease_ms } => write!(f, "held {lease_ms}"),
            Promised::Released => f.write_str("released"),
            Promised::Denied => f.write_str("denied"),
            Promised::Forgotten => f.write_str("forgotten"),
            Promised::Unexpected(error) => write!(f, "unexpected {}", error.replace('\n', " ")),
        }
    }
}

const RELEASE: Request = Request::Release {
    fence: None,
    all: false,
    reqid: None,
};

fn acquire(limit: u32, lease_ms: u64) -> Request {
    Request::Acquire(Acquire {
        lease_ms,
        limit: if limit == 0 {
            Limit::Shared
        } else {
            Limit::Of(limit)
        },
        wait: Wait::No,
        reqid: None,
    })
}

fn extend(lease_ms: u64) -> Request {
    let fence = None;
    Request::Extend { lease_ms, fence }
}
