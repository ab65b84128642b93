//! What the engine has its host do: in which order, how often, and what becomes of it when the host refuses.

use crate::engine::{Cause, Host, Process, WriteCheck, answering, decide, events};
use crate::memory::{HostCall, Memory};
use crate::names::Call;
use crate::testing::Request;
use crate::transition::Policy;
use crate::wire::{Acquired, Grants};

const LEASE_MS: u64 = 1_000;

fn server() -> Memory {
    let mut server = Memory::default();
    server.state().server.set_policy(Policy {
        max_waiters_per_lock: 10,
        max_waiters: 10,
        max_inboxes: 10,
        detect_deadlocks: true,
        ..Policy::default()
    });
    pass(&mut server, 5_000);
    events::loading_ended(&mut server);
    server
}

/// No timer fires.
fn pass(server: &mut Memory, ms: u64) {
    server.clocks.now = server.clocks.now.after_ms(ms);
}

#[track_caller]
fn granted(server: &mut Memory, key: &str, owner: &str) {
    let reply = server.ask(&format!("ACQUIRE {key} {owner} {LEASE_MS} REQID r"));
    assert_eq!(reply.as_deref(), Ok("granted 1000 0 1"));
}

/// Sends an ACQUIRE that blocks its client.
#[track_caller]
fn blocked(server: &mut Memory, key: &str, owner: &str) -> Call {
    let reply = server.ask(&format!("ACQUIRE {key} {owner} {LEASE_MS} BLOCK 0 REQID r"));
    reply.expect_err("a client that waits")
}

#[track_caller]
fn release(server: &mut Memory, key: &str, owner: &str) {
    let reply = server.ask(&format!("RELEASE {key} {owner} ALL"));
    assert_eq!(reply.as_deref(), Ok("left 0"));
}

fn grants(server: &mut Memory, cursor: u64) -> Option<u64> {
    let request = Grants {
        inbox: b"inbox",
        cursor,
        block_ms: Some(100),
        ttl_ms: Some(200),
    };
    let flags = server.flags;
    let reply = answering::receive(server, flags, b"", &request).expect("an inbox");
    reply.map(|reply| reply.cursor)
}

/// Alice's lease is over, so that carol gets the lock when bob asks for it, who waits.
#[test]
fn effects_are_carried_out_in_one_order() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    blocked(&mut server, "a", "carol");
    pass(&mut server, LEASE_MS);
    server.calls.clear();
    let Request::Acquire(request) = Request::parse("ACQUIRE bob 1000 BLOCK 0") else {
        panic!("another request")
    };
    let flags = server.flags;
    let acquired = decide(&mut server, b"a", flags, Cause::Client, |it| {
        it.acquire(&request, b"")
    });
    assert!(matches!(acquired, Ok(Acquired::Queued(_))), "{acquired:?}");
    let (block, replicate, wake) = (HostCall::Block, HostCall::Replicate, HostCall::Wake);
    let notify = HostCall::Notify;
    let expected = [HostCall::Open, block, replicate, wake, notify, notify];
    assert_eq!(server.calls, expected);
}

#[test]
fn lock_is_stored_before_it_is_replicated_and_deleted_before_too() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    let (set, delete) = (HostCall::Set, HostCall::Delete);
    assert_eq!(server.calls[1..3], [set, HostCall::Replicate]);
    server.calls.clear();
    release(&mut server, "a", "alice");
    assert_eq!(server.calls[1..3], [delete, HostCall::Replicate]);
}

/// It never should. In a release build, the request gets an error, and nothing is replicated.
#[test]
#[should_panic(expected = "the server did not store a lock, which was not granted")]
fn lock_that_the_host_refuses_is_an_internal_error() {
    let mut server = server();
    server.refuses_values = true;
    let _ = server.ask("ACQUIRE a alice 1000");
}

#[test]
fn due_queue_is_served_once() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    blocked(&mut server, "a", "bob");
    pass(&mut server, LEASE_MS);
    server.calls.clear();
    server.run_due();
    assert_eq!(server.owner("a").as_deref(), Some("bob"));
    let opened = server.calls.iter().filter(|call| **call == HostCall::Open);
    assert_eq!(opened.count(), 1);
}

/// An expired lease of another lock must not look like a deadlock. The command goes on in its own database.
#[test]
fn queues_that_are_due_are_served_before_a_request_that_may_wait() {
    let mut server = server();
    assert!(server.select_db(1));
    granted(&mut server, "b", "alice");
    let call = blocked(&mut server, "b", "bob");
    assert!(server.select_db(0));
    pass(&mut server, LEASE_MS);
    let reply = server.ask("ACQUIRE a carol 1000 BLOCK 0");
    assert_eq!(reply.as_deref(), Ok("granted 1000 0 1"));
    assert_eq!(server.take_woken(), [call]);
    assert_eq!((server.db(), server.owner("a").as_deref()), (0, Some("carol")));
}

/// Bob gets the lock, and his client is gone before the reply.
#[test]
fn grant_whose_client_is_gone_is_rolled_back_when_the_server_accepts_writes() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    blocked(&mut server, "a", "bob");
    release(&mut server, "a", "alice");
    let calls = server.take_woken();
    server.refusal = Some(WriteCheck::Later);
    answering::lose_reader(&mut server, calls[0]);
    server.run_due();
    assert_eq!(server.owner("a").as_deref(), Some("bob"));
    server.refusal = None;
    pass(&mut server, 60);
    server.run_due();
    assert_eq!(server.owner("a"), None);
}

/// The reply to the repeated request has carried the grant.
#[test]
fn grant_that_was_asked_for_again_is_not_rolled_back() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    blocked(&mut server, "a", "bob");
    release(&mut server, "a", "alice");
    server.refusal = Some(WriteCheck::Later);
    let calls = server.take_woken();
    answering::lose_reader(&mut server, calls[0]);
    granted(&mut server, "a", "bob");
    server.refusal = None;
    pass(&mut server, 60);
    server.run_due();
    assert_eq!(server.owner("a").as_deref(), Some("bob"));
}

#[test]
fn call_that_is_replaced_or_over_is_woken() {
    let mut server = server();
    let cursor = grants(&mut server, 0).expect("the reply that makes the inbox");
    assert_eq!(grants(&mut server, cursor), None);
    let first = server.take_parked().expect("a call that waits");
    assert_eq!(grants(&mut server, cursor), None);
    let second = server.take_parked().expect("a call that waits");
    assert_eq!(server.take_woken(), [first]);
    pass(&mut server, 100);
    server.run_due();
    assert_eq!(server.take_woken(), [second]);
}

#[test]
fn nothing_is_granted_in_a_pause() {
    let mut server = server();
    granted(&mut server, "a", "alice");
    let call = blocked(&mut server, "a", "bob");
    server.is_paused = true;
    pass(&mut server, LEASE_MS);
    server.run_due();
    assert_eq!(server.owner("a").as_deref(), Some("alice"));
    server.is_paused = false;
    pass(&mut server, 60);
    server.run_due();
    assert_eq!(
        (server.owner("a").as_deref(), server.take_woken()),
        (Some("bob"), vec![call])
    );
}
