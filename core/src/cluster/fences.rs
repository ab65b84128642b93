//! Fences in a cluster. A free lock has no key that could bring its last fence along when another node grants it.
//!
//! - A node grants in a slot only after it has *claimed* the slot: it advances its counter beyond all that other nodes
//!   may have granted, and announces the claim to them. A node that receives the announcement has lost its own claim.
//! - An announcement carries the counter. It is repeated once a second, and at once when the counter grows faster than
//!   any node grants. So each node knows a bound of the other counters.
//!
//! The order of grants in a slot is then the order of claims, whichever way the slot moves: also there and back within
//! a second, and when its migration is cancelled after the other node has granted in it.

use std::collections::BTreeMap;

use super::slots::SlotSet;
use crate::fence::{FENCES_PER_MS, Fence, Fences, WallClock};
use crate::time::Instant;

/// The name of a node in its cluster.
pub type NodeId = [u8; 40];

/// An announcement may have been under way for some time when it arrives.
const TRANSIT_MS: u64 = 5;
/// A node that is silent for longer is partitioned, or dead: it does not grant at the highest rate all the time.
const MAX_SILENCE_MS: u64 = 10_000;
/// How an announcement begins. All modules whose names are not nine bytes long share their messages.
const MAGIC: &[u8; 8] = b"dlockfn1";

/// What a node knows about the fences of the others, and the slots in which it may grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterFences {
    claimed: SlotSet,
    peers: BTreeMap<NodeId, Report>,
    /// The last announcement, unless a claim was made since.
    announced: Option<Report>,
}

/// A counter as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Report {
    fence: Fence,
    at: Instant,
}

impl Report {
    /// What the counter can have grown to after so much time.
    fn after_ms(self, ms: u64) -> Fence {
        self.fence.saturating_add(ms.saturating_mul(FENCES_PER_MS))
    }

    /// The highest fence that the node may have granted by now.
    fn bound(self, now: Instant) -> Fence {
        let silent_ms = self.at.ms_until(now).saturating_add(TRANSIT_MS);
        self.after_ms(silent_ms.min(MAX_SILENCE_MS))
    }
}

/// What a node announces to all others.
#[derive(Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The counter of its fences.
    pub fence: Fence,
    claimed: SlotSet,
}

impl Announcement {
    /// For [`Announcement::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let fence = self.fence.to_be_bytes();
        let head = MAGIC.iter().copied().chain(fence);
        head.chain(self.claimed.to_bytes()).collect()
    }

    /// `None` if the bytes are no announcement.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fence, slots) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        Some(Self {
            fence: Fence::from_be_bytes(*fence),
            claimed: SlotSet::from_bytes(slots)?,
        })
    }
}

impl ClusterFences {
    /// Claims a slot before a grant in it, unless it is claimed, together with the slots in `local`, which this node
    /// serves: they need no announcements of their own. Returns whether it is a new claim.
    pub fn claim(
        &mut self,
        slot: usize,
        local: &SlotSet,
        fences: &mut Fences,
        clock: impl FnOnce() -> WallClock,
        now: Instant,
    ) -> bool {
        if !self.claimed.insert(slot) {
            return false;
        }
        let clock = clock();
        self.claimed.merge(local);
        self.announced = None;
        // The clock is beyond those that are not mentioned, and beyond what other nodes forgot in a restart.
        self.peers.retain(|_, peer| !clock.is_at_least(peer.bound(now)));
        let bounds = self.peers.values().map(|peer| peer.bound(now));
        fences.advance_beyond(clock, bounds.max().unwrap_or(0));
        true
    }

    /// Gives up the claims of the slots that are not in `settled`. Returns how many these were.
    pub fn retain_claims(&mut self, settled: &SlotSet) -> u32 {
        self.claimed.intersect(settled)
    }

    /// Takes note of an announcement. One with a counter that cannot be true is ignored.
    pub fn receive(
        &mut self,
        peer: NodeId,
        announcement: &Announcement,
        fences: &Fences,
        clock: WallClock,
        now: Instant,
    ) {
        let fence = announcement.fence;
        if !fences.is_plausible(fence, clock) {
            return;
        }
        self.claimed.subtract(&announcement.claimed);
        self.peers.insert(peer, Report { fence, at: now });
    }

    /// The announcement that the other nodes need now: they have missed a claim, or the counter is beyond what they
    /// assume. `periodic`: they need one in any case.
    pub fn announce(&mut self, fences: &Fences, periodic: bool, now: Instant) -> Option<Announcement> {
        let fence = fences.known();
        let is_known = |last: Report| fence <= last.after_ms(last.at.ms_until(now));
        if fence == 0 || !periodic && self.announced.is_some_and(is_known) {
            return None;
        }
        self.announced = Some(Report { fence, at: now });
        Some(Announcement {
            fence,
            claimed: self.claimed.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::MAX_FENCE;
    use crate::names::LockNameRef;

    const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };
    const CLOCK: WallClock = WallClock::from_unix_ms(1_750_000_000_000);
    const NOW: Instant = Instant::from_micros(5_000_000);
    const A: NodeId = [b'a'; 40];

    /// A node that has granted in this slot, so that its counter is at the clock.
    fn granted(slot: usize) -> (ClusterFences, Fences) {
        let (mut cluster, mut fences) = (ClusterFences::default(), Fences::starting());
        fences.advance(CLOCK, 0);
        assert!(cluster.claim(slot, &SlotSet::EMPTY, &mut fences, || CLOCK, NOW));
        fences.next_fence(NAME, None).unwrap();
        (cluster, fences)
    }

    fn ahead(fences: &mut Fences, by_ms: u64) {
        fences.observe(fences.known() + by_ms * FENCES_PER_MS);
    }

    #[test]
    fn announcement_survives_encoding() {
        let (mut cluster, fences) = granted(16_383);
        let announcement = cluster.announce(&fences, false, NOW).unwrap();
        let bytes = announcement.encode();
        assert_eq!(Announcement::decode(&bytes), Some(announcement));
        for end in 0..bytes.len() {
            assert_eq!(Announcement::decode(&bytes[..end]), None);
        }
        assert_eq!(Announcement::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn claim_goes_beyond_counter_of_peer_that_is_ahead_of_clock() {
        let (mut peer, mut peer_fences) = granted(1);
        ahead(&mut peer_fences, 30_000);
        let (mut cluster, mut fences) = granted(2);
        let announcement = peer.announce(&peer_fences, false, NOW).unwrap();
        cluster.receive(A, &announcement, &fences, CLOCK, NOW);
        assert!(cluster.claim(1, &SlotSet::EMPTY, &mut fences, || CLOCK, NOW));
        assert!(fences.known() > peer_fences.known());
        let before = fences.clone();
        assert!(!cluster.claim(1, &SlotSet::EMPTY, &mut fences, || CLOCK, NOW));
        assert_eq!(fences, before, "it is claimed");
    }

    #[test]
    fn bound_of_peer_grows_until_it_is_silent_for_too_long() {
        let report = Report { fence: 7, at: NOW };
        let bound = |ms| report.bound(NOW.after_ms(ms));
        assert_eq!(bound(1_000), 7 + (1_000 + TRANSIT_MS) * FENCES_PER_MS);
        assert_eq!(bound(MAX_SILENCE_MS), bound(10 * MAX_SILENCE_MS));
    }

    #[test]
    fn claims_of_many_nodes_stay_near_clock() {
        let (mut fences, mut reports) = (Vec::new(), Vec::new());
        for node in 0..100_u8 {
            let (mut cluster, mut own) = (ClusterFences::default(), Fences::starting());
            own.advance(CLOCK, 0);
            for (peer, announcement) in &reports {
                cluster.receive([*peer; 40], announcement, &own, CLOCK, NOW);
            }
            cluster.claim(node.into(), &SlotSet::EMPTY, &mut own, || CLOCK, NOW);
            own.next_fence(NAME, None).unwrap();
            reports.push((node, cluster.announce(&own, false, NOW).unwrap()));
            fences.push(own.known());
        }
        assert!(fences.is_sorted());
        assert!(fences[99] - fences[0] <= 100 * (TRANSIT_MS * FENCES_PER_MS + 1));
    }

    #[test]
    fn announced_claim_ends_claim_of_receiver() {
        let ((mut first, first_fences), (mut second, mut fences)) = (granted(1), granted(1));
        let announcement = first.announce(&first_fences, false, NOW).unwrap();
        second.receive(A, &announcement, &fences, CLOCK, NOW);
        assert!(second.claim(1, &SlotSet::EMPTY, &mut fences, || CLOCK, NOW));
        assert!(fences.known() > first_fences.known());
    }

    #[test]
    fn claim_covers_slots_served_and_is_given_up_for_others() {
        let (mut cluster, mut fences) = granted(1);
        let mut local = SlotSet::EMPTY;
        local.insert(3);
        assert!(cluster.claim(2, &local, &mut fences, || CLOCK, NOW));
        assert!(!cluster.claim(3, &local, &mut fences, || CLOCK, NOW));
        assert_eq!(cluster.retain_claims(&local), 2);
        assert!(cluster.claim(2, &local, &mut fences, || CLOCK, NOW));
    }

    #[test]
    fn node_announces_claims_and_leaps_at_once_and_the_rest_once_a_second() {
        let (mut cluster, mut fences) = granted(1);
        assert!(cluster.announce(&fences, false, NOW).is_some(), "the claim");
        assert!(cluster.announce(&fences, false, NOW).is_none());
        assert!(cluster.announce(&fences, true, NOW).is_some());
        ahead(&mut fences, 1_000);
        assert!(cluster.announce(&fences, false, NOW.after_ms(1_000)).is_none());
        ahead(&mut fences, 1_000);
        assert!(cluster.announce(&fences, false, NOW.after_ms(1_000)).is_some());
        assert!(
            ClusterFences::default()
                .announce(&Fences::starting(), true, NOW)
                .is_none()
        );
    }

    #[test]
    fn implausible_counter_is_ignored() {
        let (mut cluster, mut fences) = granted(1);
        let forged = Announcement {
            fence: MAX_FENCE,
            claimed: SlotSet::EMPTY,
        };
        cluster.receive(A, &forged, &fences, CLOCK, NOW);
        assert!(cluster.claim(2, &SlotSet::EMPTY, &mut fences, || CLOCK, NOW));
        assert!(fences.next_fence(NAME, None).is_some());
    }
}
