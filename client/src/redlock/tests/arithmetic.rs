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
        1 => Just(Vote::Hopeless),
    ]
}

#[test]
fn a_majority_is_more_than_half_also_of_an_even_number() {
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
fn two_majorities_have_a_server_in_common_and_one_fewer_would_not() {
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
fn a_split_vote_of_an_even_number_is_decided() {
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
fn a_lease_is_certain_for_a_hundredth_and_2_ms_less_than_its_length() {
    for lease in [ms(100), ms(1_000), ms(30_000), ms(86_400_000)] {
        let plan = crate::hold::Plan {
            lease,
            renew_after: None,
            over_at: None,
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

fn share(remaining_ms: u64) -> NodeLease {
    NodeLease {
        remaining: ms(remaining_ms),
        lease: ms(1000),
        is_denied: false,
    }
}

const DENIED: NodeLease = NodeLease {
    remaining: Duration::ZERO,
    lease: ms(1000),
    is_denied: true,
};

#[test]
fn a_lock_lasts_until_too_few_leases_do() {
    let hold = Hold::new(Quorum::of(5), None);
    let shares = [share(900), share(100), share(500), share(300)];
    // One server has granted nothing.
    assert_eq!(hold.remaining(at(0), &shares), ms(300) - ms(9));
    assert_eq!(hold.remaining(at(0), &shares[..2]), ms(0));
    assert_eq!(hold.lost_reason(at(0), &shares), None);
}

#[test]
fn a_loss_is_told_once_with_its_reason_and_lasts_for_ever() {
    let held = [share(500), share(500)];
    let cases: [(&[NodeLease], LostReason); 3] = [
        (&[share(500), share(9)], LostReason::LeaseExpired),
        (&[share(500), DENIED], LostReason::LeaseExpired),
        (&[share(500), DENIED, DENIED], LostReason::NotHeld),
    ];
    for (shares, reason) in cases {
        let mut hold = Hold::new(Quorum::of(3), Some(at(10_000)));
        assert_eq!(hold.on_time(at(0), &held), None);
        assert_eq!(hold.on_time(at(1), shares), Some(reason));
        assert_eq!(hold.on_time(at(2), shares), None);
        // A server that grants late does not bring it back.
        assert!(!hold.is_open());
        assert_eq!(hold.remaining(at(3), &held), ms(0));
        assert_eq!(hold.lost_reason(at(3), &held), Some(reason));
        assert_eq!(hold.give_up(at(3), &held), Some(reason));
    }
}

#[test]
fn the_longest_time_ends_a_lock_on_whichever_servers() {
    let mut hold = Hold::new(Quorum::of(1), Some(at(100)));
    assert_eq!(hold.remaining(at(90), &[share(900)]), ms(10));
    assert_eq!(
        hold.on_time(at(100), &[share(900)]),
        Some(LostReason::MaxHoldExceeded)
    );
}

#[test]
fn what_is_given_up_is_neither_held_nor_lost() {
    let mut hold = Hold::new(Quorum::of(1), None);
    assert_eq!(hold.give_up(at(0), &[share(500)]), None);
    assert_eq!(hold.remaining(at(0), &[share(500)]), ms(0));
    assert_eq!(hold.on_time(at(5000), &[]), None);
    assert!(!hold.is_open());
}

proptest! {
    #[test]
    fn a_decision_comes_as_soon_as_it_is_certain_and_never_changes(
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
    fn a_lock_lasts_exactly_as_long_as_a_majority_of_leases(
        nodes in 1..=MOST_NODES, mut each in prop::collection::vec(0u64..50, 0..=MOST_NODES), at in 0u64..50
    ) {
        each.truncate(nodes);
        let quorum = Quorum::of(nodes);
        let lasting = each.iter().filter(|&&lasts| lasts > at).count();
        let lasts = quorum.lasts(each.into_iter().map(ms));
        prop_assert_eq!(lasts > ms(at), lasting >= quorum.needed());
    }

    #[test]
    fn no_time_wraps_around(remaining in any::<Duration>(), lease in any::<Duration>()) {
        let certain = certain(remaining, lease);
        prop_assert!(certain <= remaining);
        let share = NodeLease { remaining, lease, is_denied: false };
        let lasts = Hold::new(Quorum::of(1), None).remaining(at(0), &[share]);
        prop_assert_eq!(lasts, certain);
    }
}
