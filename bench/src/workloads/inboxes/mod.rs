//! Waiting through an inbox: hand-overs beside those by BLOCK, and what many waiters and dead processes cost.

mod crowd;
mod hand_over;
pub mod process;

use crate::error::Result;
use crate::results::Results;
use crate::scale::Scale;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    hand_over::measure(scale, results)?;
    crowd::measure(scale, results)
}
