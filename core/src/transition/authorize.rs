//! Who may release or extend: a holder, by its own fence if it gives one.

use crate::lock::{Holder, Lock};
use crate::wire::Error;

/// The index of the holder that makes the request, if the fence it gives is its own.
pub(super) fn authorized(
    lock: &Lock,
    owner: &[u8],
    fence: Option<u64>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<usize, Error> {
    match lock.find(owner).filter(|(_, holder)| is_valid(holder)) {
        None if lock.holders().iter().any(is_valid) => Err(Error::NotOwner),
        None => Err(Error::NotHeld),
        Some((_, holder)) if fence.is_some_and(|fence| fence != holder.fence) => Err(Error::Stale),
        Some((index, _)) => Ok(index),
    }
}

/// As [`authorized`], to change the holder.
pub(super) fn authorize<'a>(
    lock: &'a mut Lock,
    owner: &[u8],
    fence: Option<u64>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<&'a mut Holder, Error> {
    let index = authorized(lock, owner, fence, is_valid)?;
    lock.holders_mut().get_mut(index).ok_or_else(vanished)
}

/// The error for a holder that was there a moment ago.
pub(super) fn vanished() -> Error {
    Error::internal("a live holder vanished during a transition")
}
