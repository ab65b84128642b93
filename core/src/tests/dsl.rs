//! Requests and assertions for tests by example.

use super::subject::{Outcome, Server};
use crate::limit::Limit;
use crate::request::{Acquire, Timeout};
use crate::ticket::Ticket;

pub const AN_HOUR: u64 = 3_600_000;

/// `ACQUIRE owner lease-ms` for a mutex that does not wait.
pub fn ask(owner: &str, lease_ms: u64) -> Acquire<'_> {
    Acquire {
        owner: owner.as_bytes(),
        lease_ms,
        limit: Limit::MUTEX,
        block: None,
        request_id: None,
    }
}

/// The same with BLOCK and without a timeout.
pub fn wait(owner: &str, lease_ms: u64) -> Acquire<'_> {
    Acquire {
        block: Some(Timeout::Infinite),
        ..ask(owner, lease_ms)
    }
}

pub fn shared(request: Acquire<'_>) -> Acquire<'_> {
    Acquire {
        limit: Limit::SHARED,
        ..request
    }
}

pub fn limited(n: u32, request: Acquire<'_>) -> Acquire<'_> {
    Acquire {
        limit: Limit::new(n).expect("a limit"),
        ..request
    }
}

pub fn named<'a>(id: &'a str, request: Acquire<'a>) -> Acquire<'a> {
    Acquire {
        request_id: Some(id.as_bytes()),
        ..request
    }
}

#[track_caller]
pub fn granted(server: &mut Server, key: &str, request: &Acquire<'_>) {
    let outcome = server.acquire(key, request);
    assert!(matches!(outcome, Ok(Outcome::Granted(_))), "{outcome:?}");
}

#[track_caller]
pub fn waits(server: &mut Server, key: &str, request: &Acquire<'_>) -> Ticket {
    match server.acquire(key, request) {
        Ok(Outcome::Waits(ticket)) => ticket,
        outcome => panic!("{outcome:?} to {request:?}"),
    }
}
