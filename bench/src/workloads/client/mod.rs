//! The Rust client: locks a second, tasks that wait, and guards that renew.

mod pairs;
mod renewals;
mod runtime;
mod waiting;

use crate::error::Result;
use crate::results::Results;
use crate::scale::Scale;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    waiting::measure(scale, results)?;
    renewals::measure(scale, results)?;
    pairs::measure(scale, results)
}
