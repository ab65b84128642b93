//! Fencing tokens.

mod counter;
mod last_fences;

pub(crate) use counter::FENCES_PER_MS;
pub use counter::{AdvanceReason, Fences, WallClock};

/// A fencing token: 1 to [`MAX_FENCE`].
pub type Fence = u64;

/// 2^53 - 1, the largest integer that every client language can hold.
pub const MAX_FENCE: Fence = (1 << 53) - 1;
