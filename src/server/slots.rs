//! Cluster slots and fences. A free lock has no key that could migrate and bring its last fence along, so
//! that the first grant in a slot which came here raises the counter to the clock.

use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc};
use redis_module::raw;
use redis_module::{Context, RedisValue};

use super::api::required;
use super::ctx::Ctx;
use super::state;
use crate::lock::Raise;

const SLOTS: usize = 16_384;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = SLOTS / WORD_BITS;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slots for which the counter has been raised since they came here.
pub struct RaisedSlots([u64; WORDS]);

impl RaisedSlots {
    pub const fn none() -> Self {
        Self([0; WORDS])
    }

    /// Whether the slot is new to the set, in which it is from now on.
    fn insert(&mut self, slot: usize) -> bool {
        let Some(word) = self.0.get_mut(slot.div_euclid(WORD_BITS)) else {
            return false;
        };
        let bit = 1_u64.rotate_left(slot.rem_euclid(WORD_BITS) as u32);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn keep_only(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }
}

/// Has the fence counter raised if the key's slot has come here since the last look.
pub fn demand_raise(key: &[u8]) {
    let slot = slot_of(key);
    state::with(|state| {
        if state.slots.insert(slot) {
            state.fences.demand(Raise::Slot);
        }
    });
}

/// Looks which slots are here, and forgets those that have left. From the cron.
pub fn look(ctx: Ctx<'_>) {
    if let (Some(id), Some(ranges)) = (my_id(), ranges(ctx)) {
        let mut here = RaisedSlots::none();
        for slot in ranges
            .iter()
            .filter(|range| range.id == id)
            .flat_map(|range| range.slots.clone())
        {
            here.insert(slot);
        }
        state::with(|state| state.slots.keep_only(&here));
    }
}

/// Which node serves a key.
pub enum Location {
    Here,
    Elsewhere { slot: usize, address: String },
    Unknown,
}

pub fn locate(ctx: Ctx<'_>, key: &[u8]) -> Location {
    let slot = slot_of(key);
    let range = ranges(ctx)
        .into_iter()
        .flatten()
        .find(|range| range.slots.contains(&slot));
    match (range, my_id()) {
        (Some(range), Some(id)) if range.id == id => Location::Here,
        (
            Some(Range {
                address: Some(address),
                ..
            }),
            Some(_),
        ) => Location::Elsewhere { slot, address },
        _ => Location::Unknown,
    }
}

/// The slot of a key: of what stands between its first braces, if that is not empty, else of all of it.
fn slot_of(key: &[u8]) -> usize {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open.checked_add(1)?..)?;
        let length = rest
            .iter()
            .position(|byte| *byte == b'}')
            .filter(|length| *length > 0)?;
        rest.get(..length)
    });
    usize::from(CRC.checksum(tag.unwrap_or(key))).rem_euclid(SLOTS)
}

fn my_id() -> Option<Vec<u8>> {
    // SAFETY: takes nothing; answers null outside of a cluster, else an id of the said length.
    unsafe {
        let id = required(raw::RedisModule_GetMyClusterID)();
        let length = raw::REDISMODULE_NODE_ID_LEN as usize;
        (!id.is_null()).then(|| std::slice::from_raw_parts(id.cast::<u8>(), length).to_vec())
    }
}

/// Slots and the primary that serves them.
struct Range {
    slots: RangeInclusive<usize>,
    id: Vec<u8>,
    /// `None` while the cluster does not know it.
    address: Option<String>,
}

/// All slots that are served, from CLUSTER SLOTS: `[first, last, [ip, port, id, ...], replica ...]` each.
fn ranges(ctx: Ctx<'_>) -> Option<Vec<Range>> {
    match Context::new(ctx.raw()).call("CLUSTER", &["SLOTS"]) {
        Ok(RedisValue::Array(ranges)) => ranges.iter().map(range).collect(),
        _ => None,
    }
}

fn range(value: &RedisValue) -> Option<Range> {
    let RedisValue::Array(parts) = value else {
        return None;
    };
    let [
        RedisValue::Integer(first),
        RedisValue::Integer(last),
        RedisValue::Array(primary),
        ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    let [ip, RedisValue::Integer(port), id, ..] = primary.as_slice() else {
        return None;
    };
    let ip = text(ip)
        .and_then(|ip| String::from_utf8(ip).ok())
        .filter(|ip| !ip.is_empty());
    Some(Range {
        slots: usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?,
        id: text(id)?,
        address: ip.map(|ip| format!("{ip}:{port}")),
    })
}

fn text(value: &RedisValue) -> Option<Vec<u8>> {
    match value {
        RedisValue::SimpleString(text) | RedisValue::BulkString(text) => Some(text.clone().into_bytes()),
        RedisValue::StringBuffer(text) => Some(text.clone()),
        RedisValue::BulkRedisString(text) => Some(text.as_slice().to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(
            slot_of(b"foo{}{bar}"),
            usize::from(CRC.checksum(b"foo{}{bar}")) % SLOTS
        );
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"open{"), usize::from(CRC.checksum(b"open{")) % SLOTS);
    }

    #[test]
    fn a_slot_is_new_once_until_it_has_left() {
        let mut slots = RaisedSlots::none();
        assert!(slots.insert(0) && slots.insert(16_383) && !slots.insert(0));
        let mut here = RaisedSlots::none();
        here.insert(16_383);
        slots.keep_only(&here);
        assert!(slots.insert(0) && !slots.insert(16_383));
    }
}
