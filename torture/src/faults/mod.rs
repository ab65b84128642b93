//! What is done to servers beyond signals and commands.

mod wall_clock;

pub use wall_clock::WallClock;
