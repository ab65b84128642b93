use std::time::Duration;

use proptest::prelude::*;

use super::ms;
use crate::clock::BootInstant;
use crate::error::LostReason;
use crate::redlock::hold::{Hold, NodeLease};
use crate::redlock::quorum::{Decision, Quorum, Tally, Vote, certain};

const MOST_NODES: usize = 9;

fn at(ms: u64) -> BootInstant {
    BootInstant::after_boot(Duration::from_millis(ms))
}

fn decide(quorum: Quorum, votes: &[Vote]) -> Decision {
    let mut tally = Tally::new(quorum);
    votes.iter().for_each(|&vote| _ = tally.count(vote));
    tally.decision()
}

fn any_vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        3 => Just(Vote::Yes),
        1 => Just(Vote::Busy),
        1 => Just(Vote::Failed),
        1 => Just(Vote::Rejected),
    ]
}

#[test]
fn majority_of_even_number_is_more_than_half() {
    let cases = [
        (1, 1, 1),
        (2, 2, 1),
        (3, 2, 2),
        (4, 3, 2),
        (5, 3, 3),
        (6, 4, 3),
        (7, 4, 4),
    ];
    for (nodes, needed, blocking) in cases {
        let quorum = Quorum::of(nodes);
        assert_eq!(
            (quorum.needed(), quorum.blocking()),
            (needed, blocking),
            "of {nodes}"
        );
    }
}

#[test]
fn any_two_majorities_share_a_server_and_smaller_groups_need_not() {
    for nodes in 1..=MOST_NODES {
        let needed = Quorum::of(nodes).needed();
        let mut disjoint = false;
        for one in 0u32..1 << nodes {
            for other in 0u32..1 << nodes {
                let count = |group: u32| group.count_ones() as usize;
                if count(one) >= needed && count(other) >= needed {
                    assert_ne!(one & other, 0, "of {nodes}");
                }
                disjoint |= one & other == 0 && count(one) + 1 >= needed && count(other) + 1 >= needed;
            }
        }
        assert!(disjoint, "{needed} of {nodes} are more than are needed");
    }
}

#[test]
fn split_vote_of_even_number_is_decided() {
    assert_eq!(
        decide(Quorum::of(4), &[Vote::Yes, Vote::Yes, Vote::Busy, Vote::Busy]),
        Decision::Busy
    );
    assert_eq!(
        decide(Quorum::of(2), &[Vote::Yes, Vote::Failed]),
        Decision::Failed
    );
}

#[test]
fn certain_lease_is_shorter_by_one_percent_and_2_ms() {
    for lease in [ms(100), ms(1_000), ms(30_000), ms(86_400_000)] {
        let plan = crate::hold::Plan {
            lease,
            renew_after: None,
            over_at: None,
            keep_until: None,
        };
        let node = crate::hold::Hold::granted(plan, at(0), ms(0), lease);
        let certain = certain(node.remaining(at(0)), lease);
        let expected = lease - lease / 100 - ms(2);
        assert!(
            expected.abs_diff(certain) <= Duration::from_micros(1),
            "{certain:?} of {lease:?}"
        );
    }
}

fn lease(remaining_ms: u64) -> NodeLease {
    NodeLease {
        remaining: ms(remaining_ms),
        lease: ms(1000),
        is_reported_lost: false,
    }
}

const REPORTED_LOST: NodeLease = NodeLease {
    remaining: Duration::ZERO,
    lease: ms(1000),
    is_reported_lost: true,
};

#[test]
fn lock_with_minority_of_leases_left_is_over() {
    let hold = Hold::new(Quorum::of(5), None);
    let leases = [lease(900), lease(100), lease(500), lease(300)];
    // One server has granted nothing.
    assert_eq!(hold.remaining(at(0), &leases), ms(300) - ms(9));
    assert_eq!(hold.remaining(at(0), &leases[..2]), ms(0));
    assert_eq!(hold.lost_reason(at(0), &leases), None);
}

#[test]
fn loss_is_reported_once_with_its_reason_and_is_final() {
    let held = [lease(500), lease(500)];
    let cases: [(&[NodeLease], LostReason); 3] = [
        (&[lease(500), lease(9)], LostReason::LeaseExpired),
        (&[lease(500), REPORTED_LOST], LostReason::LeaseExpired),
        (&[lease(500), REPORTED_LOST, REPORTED_LOST], LostReason::NotHeld),
    ];
    for (leases, reason) in cases {
        let mut hold = Hold::new(Quorum::of(3), Some(at(10_000)));
        assert_eq!(hold.on_time(at(0), &held), None);
        assert_eq!(hold.on_time(at(1), leases), Some(reason));
        assert_eq!(hold.on_time(at(2), leases), None);
        // A server that grants late does not bring it back.
        assert!(!hold.is_open());
        assert_eq!(hold.remaining(at(3), &held), ms(0));
        assert_eq!(hold.lost_reason(at(3), &held), Some(reason));
        assert_eq!(hold.give_up(at(3), &held), Some(reason));
    }
}

#[test]
fn max_hold_ends_lock_despite_longer_leases() {
    let mut hold = Hold::new(Quorum::of(1), Some(at(100)));
    assert_eq!(hold.remaining(at(90), &[lease(900)]), ms(10));
    assert_eq!(
        hold.on_time(at(100), &[lease(900)]),
        Some(LostReason::MaxHoldExceeded)
    );
}

#[test]
fn lock_given_up_is_neither_held_nor_lost() {
    let mut hold = Hold::new(Quorum::of(1), None);
    assert_eq!(hold.give_up(at(0), &[lease(500)]), None);
    assert_eq!(hold.remaining(at(0), &[lease(500)]), ms(0));
    assert_eq!(hold.on_time(at(5000), &[]), None);
    assert!(!hold.is_open());
}

proptest! {
    #[test]
    fn decision_comes_once_certain_and_never_changes(
        votes in prop::collection::vec(any_vote(), 1..=MOST_NODES)
    ) {
        let quorum = Quorum::of(votes.len());
        let agreed = |votes: &[Vote]| votes.iter().filter(|&&vote| vote == Vote::Yes).count();
        let is_reached = agreed(&votes) >= quorum.needed();
        prop_assert_eq!(decide(quorum, &votes) == Decision::Reached, is_reached);
        for answered in 0..=votes.len() {
            let (now, open) = (agreed(&votes[..answered]), votes.len() - answered);
            let certain = now >= quorum.needed() || now + open < quorum.needed();
            let decision = decide(quorum, &votes[..answered]);
            prop_assert_eq!(decision != Decision::Open, certain, "after {} of {:?}", answered, &votes);
            if certain {
                prop_assert_eq!(decision == Decision::Reached, is_reached);
            }
        }
    }

    #[test]
    fn lock_lasts_exactly_as_long_as_majority_of_leases(
        nodes in 1..=MOST_NODES, mut each in prop::collection::vec(0u64..50, 0..=MOST_NODES), at in 0u64..50
    ) {
        each.truncate(nodes);
        let quorum = Quorum::of(nodes);
        let lasting = each.iter().filter(|&&lasts| lasts > at).count();
        let lasts = quorum.remaining(each.into_iter().map(ms));
        prop_assert_eq!(lasts > ms(at), lasting >= quorum.needed());
    }

    #[test]
    fn certain_lease_of_extreme_times_saturates(remaining in any::<Duration>(), lease in any::<Duration>()) {
        let certain = certain(remaining, lease);
        prop_assert!(certain <= remaining);
        let lease = NodeLease { remaining, lease, is_reported_lost: false };
        let lasts = Hold::new(Quorum::of(1), None).remaining(at(0), &[lease]);
        prop_assert_eq!(lasts, certain);
    }
}
