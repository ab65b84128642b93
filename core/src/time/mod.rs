//! Moments, the clock by which leases are compared, the grace period, and what else a decision reads.

mod grace;
mod inputs;
mod instant;
mod lease_clock;

pub use grace::{Grace, GraceKind, GraceLength, GraceSettings};
pub use inputs::{Environment, Inputs, Role};
pub use instant::Instant;
pub use lease_clock::LeaseClock;
