//! The number that is a fencing token.

/// A fencing token: 1 to [`MAX_FENCE`].
pub type Fence = u64;

/// 2^53 - 1, the largest integer that every client language can hold.
pub const MAX_FENCE: Fence = (1 << 53) - 1;
