//! Histories of the lock `door`, for tests.

use crate::history::{Acquire, History, Limit, Op, Reply, Request, ServerTerm, Wait};

pub const MUTEX: Limit = Limit::Of(1);

pub fn history(ops: Vec<Op>) -> History {
    History {
        ops,
        ..History::default()
    }
}

/// Times in milliseconds.
pub fn op(owner: &str, sent_ms: u64, replied_ms: u64, request: Request, reply: Reply) -> Op {
    Op {
        owner: owner.into(),
        key: "door".into(),
        server: ServerTerm::default(),
        request,
        sent: sent_ms * 1_000,
        replied: replied_ms * 1_000,
        reply,
    }
}

pub fn acquire(limit: Limit) -> Request {
    Request::Acquire(Acquire {
        lease_ms: 1_000,
        limit,
        wait: Wait::No,
        reqid: None,
    })
}

pub fn acquire_with_reqid(id: &str) -> Request {
    Request::Acquire(Acquire {
        lease_ms: 1_000,
        limit: MUTEX,
        wait: Wait::No,
        reqid: Some(id.into()),
    })
}

pub fn grant(fence: u64) -> Reply {
    grant_of(fence, 1, 1_000, 0)
}

pub fn grant_of(fence: u64, holds: u64, lease_ms: u64, waited_ms: u64) -> Reply {
    Reply::Granted {
        fence,
        holds,
        lease_ms,
        waited_ms,
    }
}

pub const RELEASE: Request = Request::Release {
    fence: None,
    all: false,
    reqid: None,
};

pub const EXTEND: Request = Request::Extend {
    lease_ms: 1_000,
    fence: None,
};

pub fn refused(error: &str) -> Reply {
    Reply::Error(error.into())
}

pub fn in_term(term: u32, op: Op) -> Op {
    Op {
        server: ServerTerm { port: 0, term },
        ..op
    }
}
