//! The encoding: nothing is lost in it, and nothing is believed that cannot be.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::lock::effects::{Effects, Replication};
use crate::lock::encoding::{decode_lock, encode_lock};
use crate::lock::fence::{Fence, Fences};
use crate::lock::limit::Limit;
use crate::lock::state::{Holder, Lock};
use crate::lock::step::{Moment, apply};
use crate::lock::time::Instant;

/// A holder of a random lock. Limit and fence are told as what they are above the least that is sound.
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
    let names = prop_oneof![4 => btree_set(vec(any::<u8>(), 1..=64), 0..3), 1 => btree_set(vec(any::<u8>(), 1..3), 60..=64)];
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
        holder.add_unnamed(part.unnamed).unwrap();
        for name in &part.names {
            holder.add_named(name).unwrap();
        }
        lock.push(holder);
    }
    assert!(lock.is_sound());
    lock
}

/// A small corruption of good bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Remove(Index),
    Insert(Index, u8),
    /// A piece is doubled.
    Double(Index, Index),
    /// A piece is lost.
    Lose(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), 0_u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        any::<Index>().prop_map(Damage::Remove),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Damage::Double(a, b)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Damage::Lose(a, b)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let length = bytes.len();
        if length == 0 {
            break;
        }
        let at = |index: &Index| index.index(length);
        let piece = |a: &Index, b: &Index| at(a).min(at(b))..at(a).max(at(b));
        match damage {
            Damage::Flip(index, bit) => {
                let at = at(index);
                bytes[at] ^= 1 << bit;
            }
            Damage::Remove(index) => drop(bytes.remove(at(index))),
            Damage::Insert(index, byte) => bytes.insert(at(index), *byte),
            Damage::Double(a, b) => {
                let piece = bytes[piece(a, b)].to_vec();
                bytes.extend(piece);
            }
            Damage::Lose(a, b) => drop(bytes.drain(piece(a, b))),
        }
    }
    bytes
}

/// Bytes that are often nearly a change, as they come from few values.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(select(&[0, 1, 2, 3, 7, b'a', b'b', 0x7f, 0x80, 0xff][..]), 0..40).prop_map(|bytes| [
            vec![1],
            bytes
        ]
        .concat()),
    ]
}

/// Whatever is read as a lock is one, and is written as it was read.
fn check_decode(bytes: &[u8], now: Instant) {
    let Ok(lock) = decode_lock(bytes, now) else { return };
    assert!(is_possible(&lock), "{lock:?}");
    assert!(!lock.is_free());
    assert_eq!(encode_lock(&lock, &Moment::at(now)), bytes);
}

/// Whatever is applied leaves a lock that can be, and whatever is not leaves no trace. Whether it was.
fn check_apply(lock: &mut Lock, bytes: &[u8], now: Instant) -> bool {
    let before = lock.clone();
    let (mut fences, mut effects) = (Fences::starting(), Effects::default());
    let accepted = apply(lock, bytes, now, &mut fences, &mut effects).is_ok();
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
        assert_eq!(effects.replication, Replication::Nothing);
        assert!(effects.events.is_empty());
    }
    accepted
}

fn is_possible(lock: &Lock) -> bool {
    let has_distinct_names = |holder: &Holder| {
        let names: BTreeSet<_> = holder.names().iter().collect();
        names.len() == holder.names().len() && names.len() <= 64
    };
    let possible = |holder: &Holder| holder.holds() > 0 && has_distinct_names(holder);
    lock.is_sound() && lock.holders().iter().all(possible)
}

/// A change told in words, to be written as the head of `encoding.rs` says.
#[derive(Clone, Debug)]
struct Told {
    departures: Vec<(u8, Vec<u8>)>,
    holders: Vec<ToldHolder>,
}

#[derive(Clone, Debug)]
struct ToldHolder {
    owner: Vec<u8>,
    limit: u32,
    fence: Fence,
    unnamed: u8,
}

impl Told {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![1];
        for (kind, owner) in &self.departures {
            bytes.extend([*kind, owner.len() as u8]);
            bytes.extend(owner);
        }
        for holder in &self.holders {
            bytes.extend([3, holder.owner.len() as u8]);
            bytes.extend(&holder.owner);
            bytes.extend([holder.limit as u8, holder.fence as u8, 10, 0, holder.unnamed, 0]);
        }
        bytes
    }

    /// Owners, limits (0 = none) and fences after this change, if it can be one of this lock.
    fn outcome(&self, lock: &[ToldHolder]) -> Option<Vec<ToldHolder>> {
        let departs = |owner: &[u8]| self.departures.iter().any(|(_, departed)| departed == owner);
        let mut holders: Vec<_> = lock
            .iter()
            .filter(|holder| !departs(&holder.owner))
            .cloned()
            .collect();
        let mut told = BTreeSet::new();
        for holder in &self.holders {
            if !told.insert(&holder.owner) {
                return None;
            }
            match holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) if (known.fence, known.limit) != (holder.fence, holder.limit) => return None,
                Some(known) => known.unnamed = holder.unnamed,
                None => holders.push(holder.clone()),
            }
        }
        let rising = holders.windows(2).all(|pair| pair[0].fence < pair[1].fence);
        let fits = holders
            .iter()
            .all(|holder| holder.limit == 0 || holders.len() <= holder.limit as usize);
        (rising && fits).then_some(holders)
    }
}

/// Owners and numbers from so small a range that a change often meets a holder.
fn told_holder() -> impl Strategy<Value = ToldHolder> {
    (b'a'..b'e', select(&[0, 0, 0, 1, 2, 3][..]), 1_u64..7, 1_u8..3).prop_map(
        |(owner, limit, fence, unnamed)| ToldHolder {
            owner: vec![owner],
            limit,
            fence,
            unnamed,
        },
    )
}

fn told() -> impl Strategy<Value = Told> {
    let departure = (1_u8..=2, (b'a'..b'e').prop_map(|owner| vec![owner]));
    (vec(departure, 0..3), vec(told_holder(), 0..3))
        .prop_filter("a change changes something", |(departures, holders)| {
            departures.len() + holders.len() > 0
        })
        .prop_map(|(departures, holders)| Told { departures, holders })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_that_was_written_is_read_as_it_was(parts in vec(part(), 1..7), now in now(), then in now()) {
        let written = lock(now, parts);
        let read = decode_lock(&encode_lock(&written, &Moment::at(now)), then).expect("a sound lock");
        assert!(read.is_sound());
        assert_eq!(read.holders().len(), written.holders().len());
        for (read, written) in read.holders().iter().zip(written.holders()) {
            assert_eq!((read.owner(), read.fence(), read.limit()), (written.owner(), written.fence(), written.limit()));
            assert_eq!((read.unnamed(), read.names()), (written.unnamed(), written.names()));
            let left = |holder: &Holder, now: Instant| holder.lease_end.as_micros() - now.as_micros();
            let held = |holder: &Holder, now: Instant| now.as_micros() - holder.since().as_micros();
            // Whole milliseconds: a lease ends never earlier, less than one later.
            assert!((0..1_000).contains(&(left(read, then) - left(written, now))));
            assert!((0..1_000).contains(&(held(written, now) - held(read, then))));
        }
    }

    #[test]
    fn random_bytes_are_refused_or_make_a_possible_lock(bytes in any_bytes(), parts in vec(part(), 0..4), now in now()) {
        check_decode(&bytes, now);
        check_apply(&mut lock(now, parts), &bytes, now);
    }

    #[test]
    fn damaged_bytes_are_refused_or_make_a_possible_lock(
        parts in vec(part(), 1..5),
        others in vec(part(), 0..3),
        damages in vec(damage(), 0..4),
        now in now(),
    ) {
        let bytes = damaged(encode_lock(&lock(now, parts.clone()), &Moment::at(now)), &damages);
        check_decode(&bytes, now);
        check_apply(&mut lock(now, parts), &bytes, now);
        check_apply(&mut lock(now, others), &bytes, now);
    }

    #[test]
    fn a_change_is_applied_if_and_only_if_it_can_be_one_of_this_lock(
        holders in vec(told_holder(), 0..4),
        changes in vec(told(), 1..6),
    ) {
        let now = Instant::default();
        let mut lock = Lock::default();
        let mut expected: Vec<ToldHolder> = Vec::new();
        let start = holders.into_iter().map(|holder| Told { departures: vec![], holders: vec![holder] });
        for change in start.chain(changes) {
            let outcome = change.outcome(&expected);
            assert_eq!(check_apply(&mut lock, &change.bytes(), now), outcome.is_some(), "{change:?} on {lock:?}");
            expected = outcome.unwrap_or(expected);
            let seen = lock.holders().iter().map(|holder| (holder.owner(), holder.fence(), holder.unnamed()));
            let wanted = expected.iter().map(|holder| (&holder.owner[..], holder.fence, u32::from(holder.unnamed)));
            assert!(seen.eq(wanted), "{lock:?} instead of {expected:?}");
        }
    }
}
