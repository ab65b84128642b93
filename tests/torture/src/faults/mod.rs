//! What is done to servers beyond signals and commands.

mod log_file;
mod wall_clock;

pub use log_file::LogFile;
pub use wall_clock::WallClock;
