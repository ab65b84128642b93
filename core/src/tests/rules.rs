//! The contract of one lock by example.

use super::ops::{Answer, Request};
use super::subject::{ORIGIN, Server, core_limit, owner_bytes};
use crate::effects::Replication;
use crate::fence::{AdvanceReason, MAX_FENCE};
use crate::lock::{Holder, MAX_REQUEST_IDS};
use crate::outcome::Event;

const ALICE: u8 = 0;
const BOB: u8 = 1;
const CAROL: u8 = 2;
const MUTEX: Option<u32> = Some(1);
const SHARED: Option<u32> = None;

/// A server without the lock.
fn server() -> Server {
    Server::new(1, ORIGIN)
}

/// Sends a request that must be granted. Returns the fence, the holds and the remaining lease.
fn granted(server: &mut Server, request: Request) -> (u64, u64, u64) {
    match server.request(0, &request) {
        Answer::Granted {
            fence,
            holds,
            lease_ms,
        } => (fence, holds, lease_ms),
        answer => panic!("{answer:?} to {request:?}"),
    }
}

#[test]
fn mutex_held_by_one_owner_is_not_granted_to_another() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    for limit in [MUTEX, Some(2), SHARED] {
        assert_eq!(
            server.request(0, &Request::acquire(BOB, 10, limit)),
            Answer::NotGranted
        );
    }
    assert_eq!(server.request(0, &Request::release(ALICE)), Answer::Holds(0));
    granted(&mut server, Request::acquire(BOB, 10, MUTEX));
}

#[test]
fn semaphore_admits_up_to_smallest_limit() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, Some(3)));
    granted(&mut server, Request::acquire(BOB, 10, Some(2)));
    assert_eq!(
        server.request(0, &Request::acquire(CAROL, 10, Some(3))),
        Answer::NotGranted
    );
    assert_eq!(server.request(0, &Request::release(BOB)), Answer::Holds(0));
    granted(&mut server, Request::acquire(CAROL, 10, Some(3)));
    granted(&mut server, Request::acquire(BOB, 10, Some(3)));
}

#[test]
fn shared_holders_exclude_mutex_request() {
    let mut server = server();
    for reader in [ALICE, BOB, CAROL] {
        granted(&mut server, Request::acquire(reader, 10, SHARED));
    }
    assert_eq!(
        server.request(0, &Request::acquire(3, 10, MUTEX)),
        Answer::NotGranted
    );
}

#[test]
fn reentry_keeps_fence_and_never_shortens_lease() {
    let mut server = server();
    let (fence, ..) = granted(&mut server, Request::acquire(ALICE, 100, MUTEX));
    assert_eq!(
        granted(&mut server, Request::acquire(ALICE, 10, MUTEX)),
        (fence, 2, 100)
    );
    assert_eq!(
        granted(&mut server, Request::acquire(ALICE, 200, MUTEX)),
        (fence, 3, 200)
    );
    assert!(server.effects.events.is_empty());
}

#[test]
fn reentry_never_changes_limit() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, Some(2)));
    granted(&mut server, Request::acquire(ALICE, 10, SHARED));
    assert_eq!(server.view(0).holders[0].limit, Some(2));
    assert_eq!(
        server.request(0, &Request::acquire(ALICE, 10, MUTEX)),
        Answer::Error("ERR", 2)
    );
    granted(&mut server, Request::acquire(BOB, 10, SHARED));
    assert_eq!(
        server.request(0, &Request::acquire(CAROL, 10, SHARED)),
        Answer::NotGranted
    );
}

#[test]
fn lease_expires_exactly_at_its_end() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    server.pass(9_999);
    assert_eq!(
        server.request(0, &Request::acquire(BOB, 10, MUTEX)),
        Answer::NotGranted
    );
    server.pass(1);
    granted(&mut server, Request::acquire(BOB, 10, MUTEX));
    assert_eq!(server.effects.events, [Event::Expired, Event::Acquired]);
}

#[test]
fn expired_lease_is_never_revived() {
    let mut server = server();
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    server.pass(10_000);
    for request in [
        Request::extend(ALICE, 10),
        Request::release(ALICE),
        Request::release_all(ALICE),
    ] {
        assert_eq!(
            server.request(0, &request.with_fence(fence)),
            Answer::Error("NOTHELD", 0)
        );
    }
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 1)),
        Answer::Holds(0)
    );
    let (next, holds, _) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    assert_eq!((next > fence, holds), (true, 1));
}

#[test]
fn holders_expire_independently_and_once() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, SHARED));
    granted(&mut server, Request::acquire(BOB, 20, SHARED));
    server.pass(10_000);
    server.sweep(0);
    assert_eq!(server.effects.events, [Event::Expired]);
    server.sweep(0);
    assert_eq!(server.effects.events, []);
    server.pass(10_000);
    server.sweep(0);
    assert_eq!(server.effects.events, [Event::Expired]);
    assert!(server.locks[0].1.is_free());
}

#[test]
fn remaining_lease_is_rounded_down() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    server.pass(1);
    assert_eq!(server.request(0, &Request::extend(ALICE, 5)), Answer::Lease(9));
    assert_eq!(server.effects.events, [Event::Extended]);
    assert_eq!(server.effects.replication, Replication::Nothing);
    assert_eq!(server.request(0, &Request::extend(ALICE, 20)), Answer::Lease(20));
    assert_eq!(server.effects.replication, Replication::Change);
}

#[test]
fn repeated_reqid_counts_once_and_keeps_lease() {
    let mut server = server();
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    assert_eq!(
        granted(&mut server, Request::named(ALICE, 500, MUTEX, 1)),
        (fence, 1, 10)
    );
    assert_eq!(
        granted(&mut server, Request::named(ALICE, 10, MUTEX, 2)),
        (fence, 2, 10)
    );
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 1)),
        Answer::Holds(1)
    );
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 1)),
        Answer::Holds(1)
    );
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 2)),
        Answer::Holds(0)
    );
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 2)),
        Answer::Holds(0)
    );
}

#[test]
fn release_takes_anonymous_holds_then_latest_reqid() {
    let mut server = server();
    granted(&mut server, Request::named(ALICE, 10, MUTEX, 2));
    granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    for (left, names) in [(2, vec![2, 1]), (1, vec![2]), (0, vec![])] {
        assert_eq!(server.request(0, &Request::release(ALICE)), Answer::Holds(left));
        let names_left = server.view(0).holders.pop().map_or(vec![], |alice| alice.names);
        assert_eq!(names_left, names);
    }
    assert_eq!(server.effects.events, [Event::Released]);
}

#[test]
fn stale_fence_is_rejected() {
    let mut server = server();
    let (old, ..) = granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    assert_eq!(
        server.request(0, &Request::release(ALICE).with_fence(old)),
        Answer::Holds(0)
    );
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    let stale = Answer::Error("STALE", fence);
    for request in [
        Request::release(ALICE),
        Request::release_all(ALICE),
        Request::release_named(ALICE, 1),
        Request::release_named(ALICE, 9),
        Request::extend(ALICE, 99),
    ] {
        assert_eq!(server.request(0, &request.with_fence(old)), stale);
        assert_eq!(server.request(0, &request.with_fence(fence + 1)), stale);
        assert_ne!(
            server.request(
                0,
                &Request {
                    owner: BOB,
                    ..request
                }
                .with_fence(fence)
            ),
            stale
        );
    }
    assert_eq!(
        server.request(0, &Request::release(ALICE).with_fence(fence)),
        Answer::Holds(0)
    );
}

#[test]
fn release_without_hold_reports_notheld_or_notowner() {
    let mut server = server();
    for request in [
        Request::release(BOB),
        Request::release_all(BOB),
        Request::extend(BOB, 10),
    ] {
        assert_eq!(server.request(0, &request), Answer::Error("NOTHELD", 0));
    }
    granted(&mut server, Request::acquire(ALICE, 10, SHARED));
    for request in [
        Request::release(BOB),
        Request::release_all(BOB),
        Request::extend(BOB, 10),
    ] {
        assert_eq!(server.request(0, &request), Answer::Error("NOTOWNER", 0));
    }
    assert_eq!(
        server.request(0, &Request::release_named(BOB, 1)),
        Answer::Holds(0)
    );
}

#[test]
fn release_by_reqid_with_fence_reports_a_lost_lock() {
    let mut server = server();
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    let release = Request::release_named(ALICE, 1).with_fence(fence);
    let unknown = Request::release_named(ALICE, 2).with_fence(fence);
    assert_eq!(server.request(0, &unknown), Answer::Holds(1));
    assert_eq!(server.request(0, &release), Answer::Holds(0));
    assert_eq!(server.request(0, &release), Answer::Error("NOTHELD", 0));
    granted(&mut server, Request::named(BOB, 10, MUTEX, 1));
    assert_eq!(server.request(0, &release), Answer::Error("NOTOWNER", 0));
    server.request(0, &Request::release(BOB));
    let (later, ..) = granted(&mut server, Request::named(ALICE, 10, MUTEX, 1));
    for request in [release, unknown] {
        assert_eq!(server.request(0, &request), Answer::Error("STALE", later));
    }
    assert_eq!(server.view(0).holders[0].names, [1]);
}

#[test]
fn grace_grants_nothing_and_keeps_known_holders() {
    let mut server = server();
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, SHARED, 1));
    server.take_over(AdvanceReason::Start, 50);
    let grace_error = Answer::Error("GRACE", 50);
    assert_eq!(server.request(0, &Request::acquire(BOB, 10, SHARED)), grace_error);
    assert_eq!(
        server.request(0, &Request::acquire(ALICE, 10, SHARED)),
        grace_error
    );
    assert_eq!(
        granted(&mut server, Request::named(ALICE, 10, SHARED, 1)),
        (fence, 1, 50)
    );
    assert_eq!(server.request(0, &Request::extend(ALICE, 60)), grace_error);
    assert_eq!(server.request(0, &Request::extend(BOB, 60)), grace_error);
    assert_eq!(
        server.request(0, &Request::extend(ALICE, 10).with_fence(fence)),
        Answer::Lease(50)
    );
    server.pass(49_999);
    assert_eq!(
        server.request(0, &Request::acquire(BOB, 10, SHARED)),
        Answer::Error("GRACE", 1)
    );
    assert_eq!(server.view(0).holders.len(), 1);
    server.pass(1);
    assert_eq!(server.view(0).holders.len(), 0);
    granted(&mut server, Request::acquire(BOB, 10, SHARED));
}

#[test]
fn extend_by_reqid_needs_a_hold_of_that_id() {
    let mut server = server();
    let extend = Request::extend_named(ALICE, 60, 1);
    assert_eq!(server.request(0, &extend), Answer::Error("NOTHELD", 0));
    let (fence, ..) = granted(&mut server, Request::named(ALICE, 10, SHARED, 2));
    assert_eq!(server.request(0, &extend), Answer::Error("STALE", fence));
    granted(&mut server, Request::named(ALICE, 10, SHARED, 1));
    assert_eq!(
        server.request(0, &Request::extend_named(BOB, 60, 1)),
        Answer::Error("NOTOWNER", 0)
    );
    assert_eq!(server.request(0, &extend), Answer::Lease(60));
    server.take_over(AdvanceReason::Start, 50);
    assert_eq!(server.request(0, &extend), Answer::Lease(60), "in a grace too");
}

#[test]
fn release_in_grace_succeeds() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, MUTEX));
    server.take_over(AdvanceReason::Promotion, 50);
    server.pass(20_000);
    assert_eq!(server.request(0, &Request::release(ALICE)), Answer::Holds(0));
}

#[test]
fn evictable_server_rejects_new_owners_only() {
    let mut server = server();
    granted(&mut server, Request::acquire(ALICE, 10, SHARED));
    server.cx.evictable = true;
    granted(&mut server, Request::acquire(ALICE, 10, SHARED));
    assert_eq!(
        server.request(0, &Request::acquire(BOB, 10, SHARED)),
        Answer::Error("EVICTABLE", 0)
    );
}

#[test]
fn acquire_with_65th_reqid_is_rejected() {
    let mut server = server();
    let last = MAX_REQUEST_IDS as u8;
    for name in 0..last {
        granted(&mut server, Request::named(ALICE, 10, MUTEX, name));
    }
    assert_eq!(
        server.request(0, &Request::named(ALICE, 10, MUTEX, last)),
        Answer::Error("ERR", 64)
    );
    assert_eq!(granted(&mut server, Request::named(ALICE, 10, MUTEX, 0)).1, 64);
    assert_eq!(granted(&mut server, Request::acquire(ALICE, 10, MUTEX)).1, 65);
    assert_eq!(
        server.request(0, &Request::release_named(ALICE, 3)),
        Answer::Holds(64)
    );
    assert_eq!(granted(&mut server, Request::named(ALICE, 10, MUTEX, last)).1, 65);
}

#[test]
fn reentry_at_largest_hold_count_is_rejected() {
    let mut server = server();
    let now = server.cx.now;
    let fence = server.engine.fences.known();
    let mut alice = Holder::new(
        owner_bytes(ALICE),
        core_limit(MUTEX),
        fence,
        now,
        now.after_ms(10),
    );
    alice.add_anonymous(u32::MAX).unwrap();
    server.locks[0].1.push(alice);
    assert_eq!(
        server.request(0, &Request::acquire(ALICE, 99, MUTEX)),
        Answer::Error("ERR", 0)
    );
    assert_eq!(
        server.request(0, &Request::release(ALICE)),
        Answer::Holds(u64::from(u32::MAX) - 1)
    );
}

#[test]
fn acquire_with_exhausted_fences_is_rejected() {
    let mut server = server();
    server.engine.fences.observe(MAX_FENCE - 1);
    assert_eq!(
        granted(&mut server, Request::acquire(ALICE, 10, SHARED)).0,
        MAX_FENCE
    );
    assert_eq!(
        server.request(0, &Request::acquire(BOB, 10, SHARED)),
        Answer::Error("ERR", 0)
    );
    assert_eq!(granted(&mut server, Request::acquire(ALICE, 10, SHARED)).1, 2);
}
