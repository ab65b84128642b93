//! Cluster slots and fences. A free lock has no key that could migrate and bring its last fence along, so
//! that the first grant in a slot which came here raises the counter to the clock.

use crc::{CRC_16_XMODEM, Crc};
use redis_module::raw;
use redis_module::{Context, RedisResult, RedisValue};

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
    let context = Context::new(ctx.raw());
    if let Some(here) = my_id().and_then(|id| slots_of(&id, context.call("CLUSTER", &["SLOTS"]))) {
        state::with(|state| state.slots.keep_only(&here));
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

/// The slots of a node, from the reply to CLUSTER SLOTS: `[first, last, [ip, port, id, ...], replica ...]` each.
fn slots_of(id: &[u8], reply: RedisResult) -> Option<RaisedSlots> {
    let Ok(RedisValue::Array(ranges)) = reply else {
        return None;
    };
    let mut slots = RaisedSlots::none();
    for range in ranges {
        let RedisValue::Array(range) = range else {
            return None;
        };
        let [
            RedisValue::Integer(first),
            RedisValue::Integer(last),
            RedisValue::Array(primary),
            ..,
        ] = range.as_slice()
        else {
            return None;
        };
        if primary.get(2).is_some_and(|primary_id| is_text(primary_id, id)) {
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            for slot in first..=last {
                slots.insert(slot);
            }
        }
    }
    Some(slots)
}

fn is_text(value: &RedisValue, text: &[u8]) -> bool {
    match value {
        RedisValue::SimpleString(own) | RedisValue::BulkString(own) => own.as_bytes() == text,
        RedisValue::StringBuffer(own) => own == text,
        RedisValue::BulkRedisString(own) => own.as_slice() == text,
        _ => false,
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
