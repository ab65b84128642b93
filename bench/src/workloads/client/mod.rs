//! The Rust client: locks a second, alone and beside others, tasks that wait, and guards that renew.

mod beside;
mod pairs;
mod renewals;
mod runtime;
mod waiting;

use crate::error::Result;
use crate::results::Results;
use crate::scale::Scale;

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    waiting::measure(scale, results)?;
    renewals::measure(scale, results)?;
    beside::measure(scale, results)?;
    pairs::measure(scale, results)
}
