//! Faults beyond signals and commands.

mod aof_file;

pub use aof_file::AofFile;
