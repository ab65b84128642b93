//! The encoding of locks and changes: one for RDB, AOF and replication.
//!
//! ```text
//! change    = version removal* holder*
//! version   = 0x01
//! removal   = 0x01 owner          its lease had expired
//!           | 0x02 owner          it released the lock
//! holder    = 0x03 owner limit fence lease-ms held-ms anonymous ids id*
//! owner     = length byte*        id = length byte*
//! ```
//!
//! Numbers are unsigned LEB128 in their shortest form. Limit 0 = none. `lease-ms` is what remains of the
//! lease, rounded up, and counts from the time of decoding; `held-ms` is how long the owner has held the lock;
//! `anonymous` is the number of holds without a request id. A whole lock is encoded as the change that creates it.

use super::{Holder, Lock, MAX_REQUEST_IDS};
use crate::fence::{Fence, MAX_FENCE};
use crate::names::{Limit, MAX_OWNER_BYTES, MAX_REQUEST_ID_BYTES};
use crate::time::{Instant, LeaseClock};
use crate::wire::{Error, Event};

const VERSION: u8 = 1;
const EXPIRED: u8 = 1;
const RELEASED: u8 = 2;
const HOLDER: u8 = 3;

/// The largest lease or age: far beyond any real clock.
const MAX_MS: u64 = 1 << 52;

/// Nearly all changes are smaller: one of a holder with the longest owner and some request ids.
const SMALL_BYTES: usize = 4 << 10;

/// A decoded change.
#[derive(Debug, Default)]
pub(crate) struct ChangeRecord<'a> {
    pub(crate) removals: Vec<Removal<'a>>,
    pub(crate) holders: Vec<Holder>,
}

/// An owner that is not a holder any more.
#[derive(Debug)]
pub(crate) struct Removal<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) event: Event,
}

/// Encodes a lock that is held.
pub fn encode_lock(lock: &Lock, clock: LeaseClock) -> Vec<u8> {
    let mut writer = Writer::default();
    for holder in lock.holders() {
        writer.holder(holder, clock);
    }
    writer.bytes
}

/// Decodes a lock. Its leases count from `now`.
pub fn decode_lock(bytes: &[u8], now: Instant) -> Result<Lock, Error> {
    let change = decode_change(bytes, now)?;
    if !change.removals.is_empty() || change.holders.is_empty() {
        return Err(Error::InvalidEncoding);
    }
    let mut lock = Lock::default();
    for holder in change.holders {
        lock.push(holder);
    }
    if lock.is_sound() {
        Ok(lock)
    } else {
        Err(Error::InvalidEncoding)
    }
}

/// Decodes a change. Its leases count from `now`.
pub(crate) fn decode_change(bytes: &[u8], now: Instant) -> Result<ChangeRecord<'_>, Error> {
    let (&VERSION, rest) = bytes.split_first().ok_or(Error::InvalidEncoding)? else {
        return Err(Error::InvalidEncoding);
    };
    let mut reader = Reader { rest };
    let mut change = ChangeRecord::default();
    while !reader.rest.is_empty() {
        match reader.byte()? {
            HOLDER => change.holders.push(reader.holder(now)?),
            _ if !change.holders.is_empty() => return Err(Error::InvalidEncoding),
            EXPIRED => change.removals.push(reader.removal(Event::Expired)?),
            RELEASED => change.removals.push(reader.removal(Event::Released)?),
            _ => return Err(Error::InvalidEncoding),
        }
    }
    Ok(change)
}

/// Encodes a change. The version byte is written with the first record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Whether its memory is worth keeping.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes.capacity() <= SMALL_BYTES
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn expired(&mut self, owner: &[u8]) {
        self.tag(EXPIRED);
        self.string(owner);
    }

    pub(crate) fn released(&mut self, owner: &[u8]) {
        self.tag(RELEASED);
        self.string(owner);
    }

    pub(crate) fn holder(&mut self, holder: &Holder, clock: LeaseClock) {
        self.tag(HOLDER);
        self.string(holder.owner());
        self.number(u64::from(holder.limit().get().unwrap_or(0)));
        self.number(holder.fence());
        self.number(clock.now.ms_until_rounded_up(holder.lease_end(clock)).min(MAX_MS));
        self.number(holder.since().ms_until(clock.now).min(MAX_MS));
        self.number(u64::from(holder.anonymous()));
        self.number(holder.request_ids().len() as u64);
        for id in holder.request_ids() {
            self.string(id);
        }
    }

    fn tag(&mut self, tag: u8) {
        if self.bytes.is_empty() {
            self.bytes.extend([VERSION, tag]);
        } else {
            self.bytes.push(tag);
        }
    }

    fn string(&mut self, string: &[u8]) {
        self.number(string.len() as u64);
        self.bytes.extend_from_slice(string);
    }

    fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push(0x80 | (number & 0x7f) as u8);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn removal(&mut self, event: Event) -> Result<Removal<'a>, Error> {
        Ok(Removal {
            owner: self.string(MAX_OWNER_BYTES)?,
            event,
        })
    }

    fn holder(&mut self, now: Instant) -> Result<Holder, Error> {
        let owner = self.string(MAX_OWNER_BYTES)?;
        let limit = match self.number(u64::from(Limit::MAX))? {
            0 => Limit::SHARED,
            n => u32::try_from(n)
                .ok()
                .and_then(Limit::new)
                .ok_or(Error::InvalidEncoding)?,
        };
        let fence: Fence = self.number(MAX_FENCE)?;
        let lease_ms = self.number(MAX_MS)?;
        let held_ms = self.number(MAX_MS)?;
        let anonymous =
            u32::try_from(self.number(u64::from(u32::MAX))?).map_err(|_| Error::InvalidEncoding)?;
        let ids = self.number(MAX_REQUEST_IDS as u64)?;
        let mut holder = Holder::new(
            owner,
            limit,
            fence,
            now.before_ms(held_ms),
            now.after_ms(lease_ms),
        );
        holder
            .add_anonymous(anonymous)
            .map_err(|_| Error::InvalidEncoding)?;
        for _ in 0..ids {
            let id = self.string(MAX_REQUEST_ID_BYTES)?;
            if holder.has_request_id(id) {
                return Err(Error::InvalidEncoding);
            }
            holder.add_with_id(id).map_err(|_| Error::InvalidEncoding)?;
        }
        if fence == 0 || holder.holds() == 0 {
            Err(Error::InvalidEncoding)
        } else {
            Ok(holder)
        }
    }

    /// 1 to `max` bytes.
    fn string(&mut self, max: usize) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.number(max as u64)?).map_err(|_| Error::InvalidEncoding)?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(Error::InvalidEncoding)?;
        self.rest = rest;
        if string.is_empty() {
            Err(Error::InvalidEncoding)
        } else {
            Ok(string)
        }
    }

    /// 0 to `max`, in the shortest form only.
    fn number(&mut self, max: u64) -> Result<u64, Error> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return Err(Error::InvalidEncoding);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest && number <= max {
                    Ok(number)
                } else {
                    Err(Error::InvalidEncoding)
                };
            }
        }
        Err(Error::InvalidEncoding)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self.rest.split_first().ok_or(Error::InvalidEncoding)?;
        self.rest = rest;
        Ok(byte)
    }
}
