//! Inboxes that end with many waiters or unread grants, that are too many, or whose answers are long.

use std::ops::Range;

use super::crowd::{Case, Crowd, INBOX, TTL_MS, WAITERS, key, ping};
use crate::error::Result;
use crate::locks::{BATCH, LEASE};
use crate::machine::MainThread;
use crate::scale::Scale;
use crate::server::Server;
use crate::wire::encode;

const LOCKS: usize = 10;
const INBOXES: usize = 1_000_000;
/// The default of `dlock.max-inboxes`.
const MAX_INBOXES: usize = 10_000;
const KEY_BYTES: usize = 1_000_000;
/// As many as a reply carries.
const ANSWERS: usize = 1_000;
/// Has the key once, as a client that sends it a thousand times has not.
const QUEUE_ALL: &str = r#"for number = 1, tonumber(ARGV[1]) do
	redis.call("DLOCK.ACQUIRE", KEYS[1], "owner-" .. number, "1000", "QUEUE", ARGV[2], "1", "REQID", "r" .. number)
end"#;

pub const CASES: [Case; 4] = [
    ("an inbox with 100 000 waiters ends", waiters_leave),
    ("an inbox with 100 000 unread grants ends", grants_are_rolled_back),
    ("a million inboxes are asked for", too_many),
    ("GRANTS with 1 000 answers of 1 MB waiting", long_answers),
];

fn waiters_leave(scale: &Scale) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    crowd.hold(LOCKS)?;
    let waiters = scale.count(WAITERS);
    crowd.queue(waiters, LOCKS, || ("", "0".into()))?;
    crowd.control.until_waiting(waiters)?;
    end_inbox(&mut crowd)?;
    crowd.worst_ping_until_all_are_answered()
}

fn grants_are_rolled_back(scale: &Scale) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    crowd.hold(LOCKS)?;
    let waiters = scale.count(WAITERS);
    crowd.queue(waiters, LOCKS, || ("SHARED", "0".into()))?;
    for lock in 0..LOCKS {
        crowd.control.call(&["DLOCK.RELEASE", &key(lock), "writer"])?;
    }
    crowd.worst_ping_until_all_are_answered()?;
    end_inbox(&mut crowd)?;
    // But those that the last reply has carried.
    let unread = waiters.saturating_sub(ANSWERS) as f64;
    crowd.worst_ping_until("dlock_grants_rolled_back", |count| count >= unread)
}

/// Its last reply carries the first answers.
fn end_inbox(crowd: &mut Crowd) -> Result<()> {
    crowd.control.call(&["DLOCK.GRANTS", INBOX, "0", "TTL", "0"])
}

/// The least that a client can do to keep the server busy and full.
fn too_many(scale: &Scale) -> Result<f64> {
    let mut crowd = Crowd::of(Server::start()?)?;
    let (mut thread, mut worst) = (MainThread::of(crowd.server.pid())?, 0.0_f64);
    let inboxes = scale.count(INBOXES);
    for first in (0..inboxes).step_by(BATCH) {
        worst = worst.max(ask_for(
            first..inboxes.min(first + BATCH),
            &mut crowd,
            &mut thread,
        )?);
    }
    if crowd.control.number("dlock", "dlock_inboxes")? > MAX_INBOXES as f64 {
        return Err("more inboxes than dlock.max-inboxes".into());
    }
    Ok(worst)
}

/// The work of the server in one PING, while these requests are under way.
fn ask_for(numbers: Range<usize>, crowd: &mut Crowd, thread: &mut MainThread) -> Result<f64> {
    let mut bytes = Vec::new();
    for number in numbers.clone() {
        encode(
            &["DLOCK.GRANTS", &format!("{number:032}"), "0", "TTL", TTL_MS],
            &mut bytes,
        );
    }
    crowd.requests.send(&bytes)?;
    let worst = ping(&mut crowd.control, thread)?;
    for _ in numbers {
        match crowd.requests.receive() {
            Err(error) if !error.to_string().contains("QUEUEFULL") => return Err(error),
            _ => {}
        }
    }
    Ok(worst)
}

/// All have timed out, and the reply has as many of them as fit.
fn long_answers(_: &Scale) -> Result<f64> {
    let mut crowd = Crowd::of(Server::start()?)?;
    let long = "k".repeat(KEY_BYTES);
    crowd.control.call(&["DLOCK.ACQUIRE", &long, "writer", LEASE])?;
    crowd
        .control
        .call(&["EVAL", QUEUE_ALL, "1", &long, &ANSWERS.to_string(), INBOX])?;
    crowd.worst_ping_until_all_are_answered()?;
    crowd.control.call(&["CONFIG", "RESETSTAT"])?;
    crowd.control.call(&["DLOCK.GRANTS", INBOX, "0"])?;
    crowd.control.spent_ms("dlock.grants")
}
