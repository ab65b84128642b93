//! Fences and grace periods over promotions and restarts, and the gaps and exceptions that `docs/guarantees.md` names.
//!
//! What every failure after any short sequence of requests leaves is in `crash`.

use crate::fence::Fence;
use crate::testing::Answer::Lease;
use crate::testing::{Command, Micros, ORIGIN, Saved, Server};
use crate::time::GraceLength;
use crate::wire::{Error, Event};

const SECOND: Micros = 1_000_000;

fn server() -> Server {
    Server::with(&["a"])
}

/// A server starts from these data as a primary.
fn started(data: &Saved, now: Micros, grace_ms: u64) -> Server {
    let mut server = Server::load(data, now, ORIGIN);
    server.start(grace_ms);
    server
}

/// A replica that has these data is promoted, without a grace period.
fn promoted(data: &Saved, random: u64) -> Server {
    let mut replica = Server::load(data, 0, ORIGIN);
    replica.host.clocks.random = random;
    replica.promote(0);
    replica
}

fn next_fence(server: &mut Server) -> Fence {
    server.granted("ACQUIRE a eve 1000").fence
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
    assert_eq!(server.grace_end(), Some(5 * SECOND));
}

#[test]
fn promotions_from_one_primary_differ_by_21_random_bits() {
    let mut primary = server();
    next_fence(&mut primary);
    let primary = primary.save();
    let known = |random| promoted(&primary, random).state().fences.known();
    for bit in 0..21 {
        assert_eq!(known(1 << bit) - known(0), 1 << bit);
    }
    assert_eq!(known(u64::MAX) - known(0), (1 << 21) - 1);
}

/// An old primary that goes on stays below the new one. If it starts again, it takes its clock, which passes the new one
/// 33 seconds after the promotion.
#[test]
fn old_primary_stays_below_the_new_one_unless_it_starts_again() {
    let mut old = server();
    next_fence(&mut old);
    assert!(old.call("RELEASE a eve").is_ok());
    let mut new = promoted(&old.save(), 0);
    let fence = next_fence(&mut new);
    old.set_now(40 * SECOND);
    assert!(next_fence(&mut old) < fence);
    assert!(old.call("RELEASE a eve").is_ok());
    for (now, is_below) in [(32 * SECOND, true), (33 * SECOND, false)] {
        let mut restarted = started(&old.save(), now, 0);
        assert_eq!(next_fence(&mut restarted) < fence, is_below);
    }
}

/// A promotion takes the counter 33 seconds ahead of the clock.
#[test]
fn fences_of_a_start_without_data_are_larger_33_seconds_after_a_promotion() {
    let nothing = server().save();
    let mut primary = server();
    next_fence(&mut primary);
    let fence = promoted(&primary.save(), 0).state().fences.known();
    for (now, is_below) in [(32 * SECOND, true), (33 * SECOND, false)] {
        let mut empty = started(&nothing, now, 0);
        assert_eq!(next_fence(&mut empty) < fence, is_below);
    }
}

/// The grace period makes up for a clock that is behind by less.
#[test]
fn fences_of_a_start_without_data_are_smaller_if_the_clock_is_behind_by_more_than_its_grace_period() {
    let nothing = server().save();
    let fence = next_fence(&mut server());
    for (behind_ms, is_below) in [(9_000, false), (11_000, true)] {
        let mut empty = Server::load(&nothing, 0, ORIGIN);
        empty.host.clocks.unix_ms -= behind_ms;
        empty.start(10_000);
        assert_eq!(empty.call("ACQUIRE a eve 1000"), Err(Error::Grace(10_000)));
        empty.set_now(10 * SECOND);
        empty.host.clocks.unix_ms -= behind_ms;
        assert_eq!(next_fence(&mut empty) < fence, is_below);
    }
}

/// The end of alice's lease and bob's grant are lost with the end of the log. Leases begin again at a start.
#[test]
fn extend_that_comes_too_late_revives_a_lease_whose_end_was_lost() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 10000").fence;
    let data = server.save();
    server.pass(10 * SECOND);
    server.granted("ACQUIRE a bob 10000");
    let mut restarted = started(&data, server.now(), 20_000);
    let extend = format!("EXTEND a alice 20000 FENCE {fence}");
    assert_eq!(restarted.call(&extend), Ok(Lease(20_000)));
}

#[test]
fn server_that_is_killed_before_it_has_recorded_its_grace_period_starts_without() {
    let mut server = server();
    let before = server.save();
    server.promote(20_000);
    let acquire = "ACQUIRE a bob 1000";
    let mut restarted = started(&server.save(), SECOND, 0);
    assert_eq!(restarted.call(acquire), Err(Error::Grace(20_000)));
    started(&before, SECOND, 0).granted(acquire);
}

/// Alice's lease has ended by its clock, but the primary may have extended it.
#[test]
fn replica_never_expires_leases_by_its_clock() {
    let mut primary = server();
    primary.granted("ACQUIRE a alice 10 LIMIT 2");
    primary.granted("ACQUIRE a bob 90 LIMIT 2");
    let mut replica = Server::load(&primary.save(), 0, ORIGIN);
    replica.pass(3_600 * SECOND);
    let bob_released = b"\x01\x02\x03bob".to_vec();
    replica.receive(0, &Command::Apply(bob_released, vec![Event::Released]));
    assert_eq!(replica.owners("a"), ["alice"]);
}
