//! Faults beyond signals and commands.

mod aof_file;
mod power;

pub use aof_file::AofFile;
pub use power::Power;
