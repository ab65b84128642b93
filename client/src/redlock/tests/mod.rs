//! The pure part: its arithmetic against random answers, and all schedules of a small world.

mod arithmetic;
mod schedules;

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
