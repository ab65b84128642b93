//! The contract of one lock by example.

use crate::fence::MAX_FENCE;
use crate::lock::{Holder, Lock, MAX_REQUEST_IDS};
use crate::names::Limit;
use crate::testing::Answer::{Holds, Lease, NotGranted};
use crate::testing::{IN_2025_UNIX_MS, ORIGIN, Outside, Server};
use crate::time::GraceLength;
use crate::wire::{Error, Event, Granted};

/// A server with the free lock `a`.
fn server() -> Server {
    Server::with(&["a"])
}

/// The holds and the remaining lease of a grant.
fn counts(granted: Granted) -> (u64, u64) {
    (granted.holds, granted.lease_ms)
}

#[test]
fn mutex_held_by_one_owner_is_not_granted_to_another() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10");
    for limit in ["LIMIT 1", "LIMIT 2", "SHARED"] {
        assert_eq!(server.call(&format!("ACQUIRE a bob 10 {limit}")), Ok(NotGranted));
    }
    assert_eq!(server.call("RELEASE a alice"), Ok(Holds(0)));
    server.granted("ACQUIRE a bob 10");
}

#[test]
fn semaphore_admits_up_to_smallest_limit() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10 LIMIT 3");
    server.granted("ACQUIRE a bob 10 LIMIT 2");
    assert_eq!(server.call("ACQUIRE a carol 10 LIMIT 3"), Ok(NotGranted));
    assert_eq!(server.call("RELEASE a bob"), Ok(Holds(0)));
    server.granted("ACQUIRE a carol 10 LIMIT 3");
    server.granted("ACQUIRE a bob 10 LIMIT 3");
}

#[test]
fn shared_holders_exclude_mutex_request() {
    let mut server = server();
    for reader in ["alice", "bob", "carol"] {
        server.granted(&format!("ACQUIRE a {reader} 10 SHARED"));
    }
    assert_eq!(server.call("ACQUIRE a dave 10"), Ok(NotGranted));
}

#[test]
fn reentry_keeps_fence_and_never_shortens_lease() {
    let mut server = server();
    let first = server.granted("ACQUIRE a alice 100");
    let again = server.granted("ACQUIRE a alice 10");
    assert_eq!((again.fence, counts(again)), (first.fence, (2, 100)));
    let longer = server.granted("ACQUIRE a alice 200");
    assert_eq!((longer.fence, counts(longer)), (first.fence, (3, 200)));
    assert!(server.effects.events.is_empty());
}

#[test]
fn reentry_never_changes_limit() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10 LIMIT 2");
    server.granted("ACQUIRE a alice 10 SHARED");
    let two = server.view(0).holders[0].limit;
    assert_eq!(two.get(), Some(2));
    assert_eq!(server.call("ACQUIRE a alice 10"), Err(Error::Upgrade(two)));
    server.granted("ACQUIRE a bob 10 SHARED");
    assert_eq!(server.call("ACQUIRE a carol 10 SHARED"), Ok(NotGranted));
}

#[test]
fn lease_expires_exactly_at_its_end() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10");
    server.pass(9_999);
    assert_eq!(server.call("ACQUIRE a bob 10"), Ok(NotGranted));
    server.pass(1);
    server.granted("ACQUIRE a bob 10");
    assert_eq!(server.effects.events, [Event::Expired, Event::Acquired]);
}

#[test]
fn expired_lease_is_never_revived() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 10 REQID r1").fence;
    server.pass(10_000);
    for request in ["EXTEND a alice 10", "RELEASE a alice", "RELEASE a alice ALL"] {
        assert_eq!(
            server.call(&format!("{request} FENCE {fence}")),
            Err(Error::NotHeld)
        );
    }
    assert_eq!(server.call("RELEASE a alice REQID r1"), Ok(Holds(0)));
    let next = server.granted("ACQUIRE a alice 10 REQID r1");
    assert_eq!((next.fence > fence, next.holds), (true, 1));
}

#[test]
fn holders_expire_independently_and_once() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10 SHARED");
    server.granted("ACQUIRE a bob 20 SHARED");
    for expected in [&[Event::Expired][..], &[Event::Expired]] {
        server.pass(10_000);
        server.expire_holders(0);
        assert_eq!(server.effects.events, expected);
        server.expire_holders(0);
        assert_eq!(server.effects.events, []);
    }
    assert!(server.lock("a").is_free());
}

#[test]
fn remaining_lease_is_rounded_down() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10");
    server.pass(1);
    assert_eq!(server.call("EXTEND a alice 5"), Ok(Lease(9)));
    assert_eq!(server.effects.events, [Event::Extended]);
    assert!(!server.effects.is_changed);
    assert_eq!(server.call("EXTEND a alice 20"), Ok(Lease(20)));
    assert!(server.effects.is_changed);
}

#[test]
fn repeated_reqid_counts_once_and_keeps_lease() {
    let mut server = server();
    let first = server.granted("ACQUIRE a alice 10 REQID r1");
    assert_eq!(server.granted("ACQUIRE a alice 500 REQID r1"), first);
    let second = server.granted("ACQUIRE a alice 10 REQID r2");
    assert_eq!((second.fence, counts(second)), (first.fence, (2, 10)));
    for (id, left) in [("r1", 1), ("r1", 1), ("r2", 0), ("r2", 0)] {
        assert_eq!(
            server.call(&format!("RELEASE a alice REQID {id}")),
            Ok(Holds(left))
        );
    }
}

#[test]
fn release_takes_anonymous_holds_then_latest_reqid() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10 REQID r2");
    server.granted("ACQUIRE a alice 10");
    server.granted("ACQUIRE a alice 10 REQID r1");
    for (left, ids) in [(2, &[b"r2", b"r1"][..]), (1, &[b"r2"]), (0, &[])] {
        assert_eq!(server.call("RELEASE a alice"), Ok(Holds(left)));
        let ids_left = server.view(0).holders.pop().map_or(vec![], |alice| alice.ids);
        assert_eq!(ids_left, ids);
    }
    assert_eq!(server.effects.events, [Event::Released]);
}

#[test]
fn stale_fence_is_rejected() {
    let mut server = server();
    let old = server.granted("ACQUIRE a alice 10").fence;
    assert_eq!(server.call(&format!("RELEASE a alice FENCE {old}")), Ok(Holds(0)));
    let fence = server.granted("ACQUIRE a alice 10 REQID r1").fence;
    let options = ["", " ALL", " REQID r1", " REQID r9"].map(|holds| ("RELEASE", holds));
    for (command, option) in options.into_iter().chain([("EXTEND", " 99")]) {
        for wrong in [old, fence + 1] {
            let reply = server.call(&format!("{command} a alice{option} FENCE {wrong}"));
            assert_eq!(reply, Err(Error::Stale));
        }
        let other = server.call(&format!("{command} a bob{option} FENCE {fence}"));
        assert_ne!(other, Err(Error::Stale));
    }
    assert_eq!(
        server.call(&format!("RELEASE a alice FENCE {fence}")),
        Ok(Holds(0))
    );
}

#[test]
fn release_without_hold_reports_notheld_or_notowner() {
    let mut server = server();
    let requests = ["RELEASE a bob", "RELEASE a bob ALL", "EXTEND a bob 10"];
    for request in requests {
        assert_eq!(server.call(request), Err(Error::NotHeld));
    }
    server.granted("ACQUIRE a alice 10 SHARED");
    for request in requests {
        assert_eq!(server.call(request), Err(Error::NotOwner));
    }
    assert_eq!(server.call("RELEASE a bob REQID r1"), Ok(Holds(0)));
}

#[test]
fn release_by_reqid_with_fence_reports_a_lost_lock() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 10 REQID r1").fence;
    let release = format!("RELEASE a alice REQID r1 FENCE {fence}");
    let unknown = format!("RELEASE a alice REQID r2 FENCE {fence}");
    assert_eq!(server.call(&unknown), Ok(Holds(1)));
    assert_eq!(server.call(&release), Ok(Holds(0)));
    assert_eq!(server.call(&release), Err(Error::NotHeld));
    server.granted("ACQUIRE a bob 10 REQID r1");
    assert_eq!(server.call(&release), Err(Error::NotOwner));
    assert_eq!(server.call("RELEASE a bob"), Ok(Holds(0)));
    server.granted("ACQUIRE a alice 10 REQID r1");
    for request in [release, unknown] {
        assert_eq!(server.call(&request), Err(Error::Stale));
    }
    assert_eq!(server.view(0).holders[0].ids, [b"r1"]);
}

#[test]
fn grace_grants_nothing_and_keeps_known_holders() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 10 SHARED REQID r1").fence;
    server.promote(50);
    let grace = Err(Error::Grace(50));
    assert_eq!(server.call("ACQUIRE a bob 10 SHARED"), grace);
    assert_eq!(server.call("ACQUIRE a alice 10 SHARED"), grace);
    let repeated = server.granted("ACQUIRE a alice 10 SHARED REQID r1");
    assert_eq!((repeated.fence, counts(repeated)), (fence, (1, 50)));
    assert_eq!(server.call("EXTEND a alice 60"), grace);
    assert_eq!(server.call("EXTEND a bob 60"), grace);
    assert_eq!(
        server.call(&format!("EXTEND a alice 10 FENCE {fence}")),
        Ok(Lease(50))
    );
    server.pass(49_999);
    assert_eq!(server.call("ACQUIRE a bob 10 SHARED"), Err(Error::Grace(1)));
    assert_eq!(server.view(0).holders.len(), 1);
    server.pass(1);
    assert_eq!(server.view(0).holders.len(), 0);
    server.granted("ACQUIRE a bob 10 SHARED");
}

#[test]
fn extend_by_reqid_needs_a_hold_of_that_id() {
    let mut server = server();
    let extend = "EXTEND a alice 60 REQID r1";
    assert_eq!(server.call(extend), Err(Error::NotHeld));
    server.granted("ACQUIRE a alice 10 SHARED REQID r2");
    assert_eq!(server.call(extend), Err(Error::StaleRequestId));
    server.granted("ACQUIRE a alice 10 SHARED REQID r1");
    assert_eq!(server.call("EXTEND a bob 60 REQID r1"), Err(Error::NotOwner));
    assert_eq!(server.call(extend), Ok(Lease(60)));
    server.promote(50);
    assert_eq!(server.call(extend), Ok(Lease(60)), "in a grace period too");
}

#[test]
fn release_in_grace_succeeds() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10");
    server.promote(50);
    server.pass(20_000);
    assert_eq!(server.call("RELEASE a alice"), Ok(Holds(0)));
}

#[test]
fn evictable_server_rejects_new_owners_only() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10 SHARED");
    server.set_policy(|policy| policy.evictable = true);
    server.granted("ACQUIRE a alice 10 SHARED");
    assert_eq!(server.call("ACQUIRE a bob 10 SHARED"), Err(Error::Evictable));
}

#[test]
fn acquire_with_65th_reqid_is_rejected() {
    let mut server = server();
    for id in 0..MAX_REQUEST_IDS {
        server.granted(&format!("ACQUIRE a alice 10 REQID {id}"));
    }
    let last = "ACQUIRE a alice 10 REQID 64";
    assert_eq!(server.call(last), Err(Error::TooManyRequestIds(64)));
    assert_eq!(server.granted("ACQUIRE a alice 10 REQID 0").holds, 64);
    assert_eq!(server.granted("ACQUIRE a alice 10").holds, 65);
    assert_eq!(server.call("RELEASE a alice REQID 3"), Ok(Holds(64)));
    assert_eq!(server.granted(last).holds, 65);
}

#[test]
fn reentry_at_largest_hold_count_is_rejected() {
    let mut server = server();
    let (now, fence) = (server.clock().now, server.state().fences.known());
    let mut alice = Holder::new(b"alice", Limit::MUTEX, fence, now, now.after_ms(10));
    alice.add_anonymous(u32::MAX).unwrap();
    let mut lock = Lock::default();
    lock.push(alice);
    server.replace(0, lock);
    assert_eq!(server.call("ACQUIRE a alice 99"), Err(Error::TooManyHolds));
    assert_eq!(server.call("RELEASE a alice"), Ok(Holds(u64::from(u32::MAX) - 1)));
}

#[test]
fn acquire_with_exhausted_fences_is_rejected() {
    let mut server = server();
    server.state_mut().fences.observe(MAX_FENCE - 1);
    assert_eq!(server.granted("ACQUIRE a alice 10 SHARED").fence, MAX_FENCE);
    assert_eq!(server.call("ACQUIRE a bob 10 SHARED"), Err(Error::FencesUsedUp));
    assert_eq!(server.granted("ACQUIRE a alice 10 SHARED").holds, 2);
}

#[test]
fn grace_period_of_longest_lease_covers_one_that_was_extended_to() {
    let mut server = server();
    server.granted("ACQUIRE a alice 10");
    assert_eq!(server.call("EXTEND a alice 5000"), Ok(Lease(5_000)));
    // The setting was lowered since.
    let longest = GraceLength::LongestLease { max_lease_ms: 1_000 };
    server.set_policy(|policy| policy.graces.failover = longest);
    server.state_mut().promote();
    server.tick();
    assert_eq!(server.grace_end(), Some(5_000_000));
}

#[test]
fn promotions_from_one_primary_differ_by_21_random_bits() {
    let mut primary = server();
    primary.granted("ACQUIRE a alice 10");
    let primary = primary.save();
    let promoted = |random| {
        let mut replica = Server::load(&primary, 0, ORIGIN);
        replica.state_mut().promote();
        let outside = Outside {
            random,
            ..Outside::at_unix_ms(IN_2025_UNIX_MS)
        };
        let now = replica.clock().now;
        replica.state_mut().tick(&outside.inputs(now));
        replica.state().fences.known()
    };
    for bit in 0..21 {
        assert_eq!(promoted(1 << bit) - promoted(0), 1 << bit);
    }
    assert_eq!(promoted(u64::MAX) - promoted(0), (1 << 21) - 1);
}
