use super::{Moment, drop_ended};
use crate::lock::effects::Effects;
use crate::lock::state::Lock;

/// Removes the holders whose lease has ended.
pub fn expire(lock: &mut Lock, moment: &Moment, effects: &mut Effects) {
    drop_ended(lock, moment, effects);
}
