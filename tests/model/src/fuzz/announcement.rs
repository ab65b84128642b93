//! Any announcements of other nodes in a cluster, and the grants of the node that receives them.
//!
//! ```text
//! input   = record*
//! record  = 0 length message         of any bytes
//!         | 1 peer fence slots       an announcement; fence: 8 bytes, slots: a bit for each of the first eight
//!         | 2 slot                   a grant
//!         | 3 milliseconds           time passes
//! length  = two bytes, little-endian; peer, slots, slot, milliseconds = one byte
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::choices::Choices;
use dlock_core::cluster::fences::Announcement;
use dlock_core::cluster::slots::slot_of;
use dlock_core::engine::{self, Process, announcements, scheduler};
use dlock_core::memory::{Clocks, Memory};
use dlock_core::{Acquire, Acquired, Granted, Instant, Limit, LockName, WallClock};

const REQUEST: Acquire<'_> = Acquire {
    owner: b"alice",
    lease_ms: 1,
    limit: Limit::MUTEX,
    wait: None,
    request_id: None,
    min_fence: None,
};
const UNIX_MS: u64 = 1_750_000_000_000;
const CLOCK: WallClock = WallClock::from_unix_ms(UNIX_MS);
/// Milliseconds since 2024.
const CLOCK_FENCE: u64 = (UNIX_MS - 1_704_067_200_000) * FENCES_PER_MS;
const FENCES_PER_MS: u64 = 2_048;
const SLOT_BYTES: usize = 16_384 / 8;
/// A key in each of the first eight slots.
static KEYS: LazyLock<[Vec<u8>; 8]> = LazyLock::new(|| {
    std::array::from_fn(|slot| {
        let mut keys = (0_u32..).map(|number| number.to_string().into_bytes());
        keys.find(|key| slot_of(key) == slot).expect("a key in each slot")
    })
});
/// What a claim adds to the counter of another node: more than it may have granted within ten seconds.
const LONGEST_LEAP: u64 = 10_006 * FENCES_PER_MS;

/// A message is ignored, or it encodes to the same bytes. A node has to claim a slot again that another one announced.
/// A claim is above the last counter of each other node, and only as far as that node may have come.
pub fn announcement(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut node = Node::new();
    while !choices.is_empty() {
        match choices.byte() % 4 {
            0 => drop(decoded(choices.bytes())),
            1 => node.receive(&mut choices),
            2 => node.grant(choices.byte() % 8),
            _ => node.pass(choices.byte().into()),
        }
    }
}

fn decoded(message: &[u8]) -> Option<Announcement> {
    let announcement = Announcement::decode(message)?;
    assert_eq!(announcement.encode(), message);
    Some(announcement)
}

struct Node {
    host: Memory,
    /// The slots that it has claimed, as bits.
    claimed: u8,
    /// The last counters of the other nodes.
    announced: BTreeMap<u8, u64>,
}

impl Node {
    fn new() -> Self {
        let mut host = Memory::default();
        host.flags.is_cluster = true;
        host.clocks = Clocks {
            now: Instant::default(),
            unix_ms: UNIX_MS,
            random: 0,
        };
        scheduler::run_jobs(&mut host);
        Self {
            host,
            claimed: 0,
            announced: BTreeMap::new(),
        }
    }

    /// The wall clock stands still.
    fn pass(&mut self, ms: u64) {
        self.host.clocks.now = self.host.clocks.now.after_ms(ms);
    }

    fn receive(&mut self, choices: &mut Choices<'_>) {
        let peer = choices.byte();
        let fence = [(); 8].map(|()| choices.byte());
        let (mut slots, first_slots) = ([0; SLOT_BYTES], choices.byte());
        // Words of 8 bytes, the most significant one first.
        slots[7] = first_slots;
        let announcement = decoded(&[&b"dlockfn1"[..], &fence, &slots].concat()).expect("a sound message");
        let before = self.host.engine().server.fences.clone();
        announcements::receive(&mut self.host, [peer; 40], &announcement.encode());
        let fences = &self.host.engine().server.fences;
        assert_eq!(*fences, before, "only a claim moves the counter");
        if fences.is_plausible(announcement.fence, CLOCK) {
            self.claimed &= !first_slots;
            self.announced.insert(peer, announcement.fence);
        }
    }

    fn grant(&mut self, slot: u8) {
        let server = &mut self.host.state().server;
        let last = server.fences.known();
        server.checkpoint_due = false;
        let (key, flags) = (&KEYS[usize::from(slot)], self.host.flags);
        let acquired = engine::acquire(&mut self.host, key, flags, b"", &REQUEST);
        let Ok(Acquired::Granted(Granted { fence, .. })) = acquired else {
            panic!("a free lock was not granted");
        };
        // It is free again.
        assert!(self.host.remove(&LockName::new(0, key)));
        // A claim moves the counter, which replicas have to know.
        let is_new = self.host.engine().server.checkpoint_due;
        assert_eq!(is_new, self.claimed & (1 << slot) == 0);
        self.claimed |= 1 << slot;
        assert!(fence > last);
        if is_new {
            let highest = self.announced.values().copied().fold(last, u64::max);
            assert!(fence > highest);
            assert!(fence <= highest.max(CLOCK_FENCE) + LONGEST_LEAP);
        }
    }
}
