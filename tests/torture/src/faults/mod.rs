//! Faults beyond signals and commands.

mod aof_file;
mod wall_clock;

pub use aof_file::AofFile;
pub use wall_clock::WallClock;
