//! The pure part: its arithmetic with random replies, and all schedules of a small model.

mod arithmetic;
mod schedules;

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
