//! The encoding: nothing is lost, and nothing unsound is accepted. Any bytes: the fuzz target `payload` of `tests/model`.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::schedule::config;
use crate::effects::Effects;
use crate::lock::{Holder, Lock, decode_lock, encode_lock};
use crate::names::{Limit, MAX_OWNER_BYTES, MAX_REQUEST_ID_BYTES};
use crate::time::{Instant, LeaseClock};
use crate::transition::ServerState;

/// A holder of a random lock. Limit and fence are relative to the least sound ones.
#[derive(Clone, Debug)]
struct Part {
    owner: Vec<u8>,
    spare_limit: Option<u32>,
    spare_fence: u64,
    lease_micros: i64,
    held_micros: i64,
    unnamed: u32,
    names: BTreeSet<Vec<u8>>,
}

fn part() -> impl Strategy<Value = Part> {
    let owner = prop_oneof![vec(any::<u8>(), 1..12), vec(any::<u8>(), 500..=512)];
    let micros = || prop_oneof![0_i64..100_000, 0_i64..1 << 52];
    let names = prop_oneof![
        4 => btree_set(vec(any::<u8>(), 1..=64), 0..3),
        1 => btree_set(vec(any::<u8>(), 1..3), 60..=64),
    ];
    let unnamed = prop_oneof![1_u32..3, any::<u32>()];
    let fence = prop_oneof![0_u64..3, 0_u64..1 << 50];
    (
        owner,
        option::of(0_u32..3),
        fence,
        micros(),
        micros(),
        unnamed,
        names,
    )
        .prop_map(
            |(owner, spare_limit, spare_fence, lease_micros, held_micros, unnamed, names)| {
                // A holder has at least one hold.
                let unnamed = if names.is_empty() { unnamed.max(1) } else { unnamed };
                Part {
                    owner,
                    spare_limit,
                    spare_fence,
                    lease_micros,
                    held_micros,
                    unnamed,
                    names,
                }
            },
        )
}

fn now() -> impl Strategy<Value = Instant> {
    (-1_i64 << 50..1 << 50).prop_map(Instant::from_micros)
}

/// At most seven holders, so that the fences stay in their range.
fn lock(now: Instant, mut parts: Vec<Part>) -> Lock {
    let mut owners = BTreeSet::new();
    parts.retain(|part| owners.insert(part.owner.clone()));
    let least_limit = parts.len() as u32;
    let mut fence = 0;
    let mut lock = Lock::default();
    for part in parts {
        fence += part.spare_fence + 1;
        let limit = part
            .spare_limit
            .map_or(Limit::SHARED, |spare| Limit::new(least_limit + spare).unwrap());
        let since = Instant::from_micros(now.as_micros() - part.held_micros);
        let lease_end = Instant::from_micros(now.as_micros() + part.lease_micros);
        let mut holder = Holder::new(&part.owner, limit, fence, since, lease_end);
        holder.add_anonymous(part.unnamed).unwrap();
        for name in &part.names {
            holder.add_with_id(name).unwrap();
        }
        lock.push(holder);
    }
    assert!(lock.is_sound());
    lock
}

fn with_version(bytes: Vec<u8>) -> Vec<u8> {
    [vec![1], bytes].concat()
}

/// An applied change leaves a sound lock, a rejected one has no side effects. Returns whether it was applied.
fn check_apply(lock: &mut Lock, bytes: &[u8], now: Instant) -> bool {
    let before = lock.clone();
    let (mut server, mut effects) = (ServerState::default(), Effects::default());
    let accepted = server.apply(now, lock, bytes, &mut effects).is_ok();
    let fences = &server.fences;
    if accepted {
        assert!(is_possible(lock), "{lock:?}");
        let new = |holder: &&Holder| before.get(holder.owner()) != Some(*holder);
        assert!(
            lock.holders()
                .iter()
                .filter(new)
                .all(|holder| holder.fence() <= fences.known())
        );
    } else {
        assert_eq!(*lock, before);
        assert_eq!(fences.known(), 0);
        assert!(!effects.is_changed);
        assert!(effects.events.is_empty());
    }
    accepted
}

fn is_possible(lock: &Lock) -> bool {
    let has_distinct_names = |holder: &Holder| {
        let names: BTreeSet<_> = holder.request_ids().iter().collect();
        names.len() == holder.request_ids().len() && names.len() <= 64
    };
    let possible = |holder: &Holder| holder.holds() > 0 && has_distinct_names(holder);
    lock.is_sound() && lock.holders().iter().all(possible)
}

/// A change, which the test encodes itself, from the grammar in `codec.rs`.
#[derive(Clone, Debug)]
struct WireChange {
    removals: Vec<(u8, Vec<u8>)>,
    holders: Vec<WireHolder>,
    /// Holders before removals: the wrong order.
    holders_first: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct WireHolder {
    owner: Vec<u8>,
    limit: u8,
    fence: u8,
    unnamed: u8,
    names: Vec<Vec<u8>>,
}

impl WireChange {
    fn one(holder: WireHolder) -> Self {
        Self {
            removals: vec![],
            holders: vec![holder],
            holders_first: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let removal = |(kind, owner): &(u8, Vec<u8>)| [vec![*kind], with_length(owner)].concat();
        let removals: Vec<u8> = self.removals.iter().flat_map(removal).collect();
        let holders: Vec<u8> = self.holders.iter().flat_map(WireHolder::bytes).collect();
        with_version(if self.holders_first {
            [holders, removals].concat()
        } else {
            [removals, holders].concat()
        })
    }

    /// The holders after this change, if it is valid for this lock.
    fn outcome(&self, lock: &[WireHolder]) -> Option<Vec<WireHolder>> {
        let removes = |owner: &[u8]| self.removals.iter().any(|(_, removed)| removed == owner);
        let mut holders: Vec<_> = lock
            .iter()
            .filter(|holder| !removes(&holder.owner))
            .cloned()
            .collect();
        for holder in &self.holders {
            if !holder.is_possible() {
                return None;
            }
            match holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) if known.limit != holder.limit => return None,
                // Only the fence of a sole holder is ever raised.
                Some(known) if known.fence > holder.fence => return None,
                Some(known) if known.fence < holder.fence && known.limit != 1 => return None,
                Some(known) => known.clone_from(holder),
                None => holders.push(holder.clone()),
            }
        }
        let ordered = !self.holders_first || self.removals.is_empty() || self.holders.is_empty();
        let rising = holders.windows(2).all(|pair| pair[0].fence < pair[1].fence);
        let fits = holders
            .iter()
            .all(|holder| holder.limit == 0 || holders.len() <= usize::from(holder.limit));
        (ordered && rising && fits).then_some(holders)
    }
}

impl WireHolder {
    fn mutex(owner: Vec<u8>) -> Self {
        Self {
            owner,
            limit: 1,
            fence: 1,
            unnamed: 1,
            names: vec![],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = vec![
            self.limit,
            self.fence,
            10,
            0,
            self.unnamed,
            self.names.len() as u8,
        ];
        let names: Vec<u8> = self.names.iter().flat_map(|name| with_length(name)).collect();
        [vec![3], with_length(&self.owner), numbers, names].concat()
    }

    fn is_possible(&self) -> bool {
        let names: BTreeSet<_> = self.names.iter().collect();
        names.len() == self.names.len() && (self.unnamed > 0 || !names.is_empty())
    }

    fn of(holder: &Holder) -> Self {
        Self {
            owner: holder.owner().to_vec(),
            limit: holder.limit().get().unwrap_or(0) as u8,
            fence: holder.fence() as u8,
            unnamed: holder.anonymous() as u8,
            names: holder.request_ids().iter().map(|name| name.to_vec()).collect(),
        }
    }
}

fn with_length(string: &[u8]) -> Vec<u8> {
    let length = string.len();
    let length = if length < 128 {
        vec![length as u8]
    } else {
        vec![length as u8 | 0x80, (length >> 7) as u8]
    };
    [length, string.to_vec()].concat()
}

/// Owners and numbers from a range so small that changes often concern a holder.
fn wire_holder() -> impl Strategy<Value = WireHolder> {
    let names = vec((b'x'..=b'z').prop_map(|name| vec![name]), 0..3);
    (
        b'a'..b'e',
        select(&[0, 0, 0, 1, 2, 3][..]),
        1_u8..7,
        0_u8..4,
        names,
    )
        .prop_map(|(owner, limit, fence, unnamed, names)| WireHolder {
            owner: vec![owner],
            limit,
            fence,
            unnamed,
            names,
        })
}

fn wire_change() -> impl Strategy<Value = WireChange> {
    let removal = (1_u8..=2, (b'a'..b'e').prop_map(|owner| vec![owner]));
    (
        vec(removal, 0..3),
        vec(wire_holder(), 0..3),
        prop::bool::weighted(0.1),
    )
        .prop_filter("a change changes something", |(removals, holders, _)| {
            !removals.is_empty() || !holders.is_empty()
        })
        .prop_map(|(removals, holders, holders_first)| WireChange {
            removals,
            holders,
            holders_first,
        })
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn random_lock_round_trips(
        parts in vec(part(), 1..7),
        grace_micros in prop_oneof![Just(0), 0_i64..200_000],
        now in now(),
        then in now(),
    ) {
        let written = lock(now, parts);
        let grace_end = Instant::from_micros(now.as_micros() + grace_micros);
        let clock = LeaseClock { grace_end, ..LeaseClock::at(now) };
        let read = decode_lock(&encode_lock(&written, clock), then).expect("a sound lock");
        assert!(is_possible(&read));
        assert_eq!(read.holders().len(), written.holders().len());
        for (read, written) in read.holders().iter().zip(written.holders()) {
            let who = |holder: &Holder| (holder.owner().to_vec(), holder.fence(), holder.limit());
            assert_eq!(who(read), who(written));
            assert_eq!((read.anonymous(), read.request_ids()), (written.anonymous(), written.request_ids()));
            let micros = |from: Instant, to: Instant| to.as_micros() - from.as_micros();
            // In whole milliseconds: a lease never ends earlier, and less than one later. The grace period that
            // extends it is included, as the reader may not know it.
            let lease_left = micros(now, written.lease_end(LeaseClock::at(now))).max(grace_micros);
            assert!((0..1_000).contains(&(micros(then, read.lease_end(LeaseClock::at(then))) - lease_left)));
            assert!((0..1_000).contains(&(micros(written.since(), now) - micros(read.since(), then))));
        }
    }

    #[test]
    fn change_is_applied_only_if_it_fits_the_lock(
        holders in vec(wire_holder(), 0..4),
        changes in vec(wire_change(), 1..6),
    ) {
        let now = Instant::default();
        let mut lock = Lock::default();
        let mut expected: Vec<WireHolder> = Vec::new();
        for change in holders.into_iter().map(WireChange::one).chain(changes) {
            let outcome = change.outcome(&expected);
            let applied = check_apply(&mut lock, &change.bytes(), now);
            assert_eq!(applied, outcome.is_some(), "{change:?} on {expected:?}");
            expected = outcome.unwrap_or(expected);
            let seen: Vec<_> = lock.holders().iter().map(WireHolder::of).collect();
            assert_eq!(seen, expected, "after {change:?}");
        }
    }
}

fn is_decoded(bytes: &[u8]) -> bool {
    decode_lock(bytes, Instant::default()).is_ok()
}

/// Beside holders that are sound.
#[test]
fn unsound_encoding_is_rejected() {
    let holder = |owner: u8, limit, fence| WireHolder {
        limit,
        fence,
        ..WireHolder::mutex(vec![owner])
    };
    let whole = |holders: &[WireHolder]| with_version(holders.iter().flat_map(WireHolder::bytes).collect());
    assert!(is_decoded(&whole(&[holder(b'a', 0, 1), holder(b'b', 2, 2)])));
    let id_twice = WireHolder {
        names: vec![vec![b'r'], vec![b'r']],
        ..holder(b'a', 1, 1)
    };
    let without_holds = WireHolder {
        unnamed: 0,
        ..holder(b'a', 1, 1)
    };
    let released = [vec![2], with_length(b"b")].concat();
    // Its lower 64 bits are a fence.
    let beyond_64_bits = [vec![3, 1, b'a', 1, 0x81], vec![0x80; 8], vec![2, 10, 0, 1, 0]].concat();
    for (what, bytes) in [
        ("no version", vec![]),
        ("another version", [vec![2], holder(b'a', 1, 1).bytes()].concat()),
        ("no holder", with_version(vec![])),
        ("an unknown record", with_version(vec![9])),
        (
            "a removal",
            with_version([released.clone(), holder(b'a', 1, 1).bytes()].concat()),
        ),
        (
            "a removal after a holder",
            with_version([holder(b'a', 1, 1).bytes(), released].concat()),
        ),
        ("fence 0", whole(&[holder(b'a', 1, 0)])),
        ("no holds", whole(&[without_holds])),
        ("a request id twice", whole(&[id_twice])),
        ("an owner twice", whole(&[holder(b'a', 0, 1), holder(b'a', 0, 2)])),
        ("falling fences", whole(&[holder(b'a', 0, 2), holder(b'b', 0, 1)])),
        ("equal fences", whole(&[holder(b'a', 0, 1), holder(b'b', 0, 1)])),
        (
            "more holders than the limit",
            whole(&[holder(b'a', 0, 1), holder(b'b', 1, 2)]),
        ),
        (
            "a number in a longer form",
            with_version(vec![3, 0x81, 0, b'a', 1, 1, 10, 0, 1, 0]),
        ),
        ("a number beyond 64 bits", with_version(beyond_64_bits)),
    ] {
        assert!(!is_decoded(&bytes), "{what}");
    }
}

#[test]
fn change_without_records_or_with_too_long_owner_is_rejected() {
    let removal = |length| with_version([vec![2], with_length(&vec![b'o'; length])].concat());
    for (what, change, expected) in [
        ("no record", with_version(vec![]), false),
        ("the longest owner", removal(MAX_OWNER_BYTES), true),
        ("a longer one", removal(MAX_OWNER_BYTES + 1), false),
    ] {
        let is_applied = check_apply(&mut Lock::default(), &change, Instant::default());
        assert_eq!(is_applied, expected, "{what}");
    }
}

#[test]
fn decoded_owner_and_request_ids_are_limited() {
    let owner = |length| WireHolder::mutex(vec![b'o'; length]);
    let with_ids = |names| WireHolder {
        names,
        ..WireHolder::mutex(vec![b'a'])
    };
    let id = |length| with_ids(vec![vec![b'n'; length]]);
    let ids = |count| with_ids((0..count).map(|name| vec![name]).collect());
    for (what, holder, expected) in [
        ("no owner", owner(0), false),
        ("the longest owner", owner(MAX_OWNER_BYTES), true),
        ("a longer one", owner(MAX_OWNER_BYTES + 1), false),
        ("an empty request id", id(0), false),
        ("the longest request id", id(MAX_REQUEST_ID_BYTES), true),
        ("a longer one", id(MAX_REQUEST_ID_BYTES + 1), false),
        ("64 request ids", ids(64), true),
        ("65 request ids", ids(65), false),
    ] {
        assert_eq!(is_decoded(&WireChange::one(holder).bytes()), expected, "{what}");
    }
}
