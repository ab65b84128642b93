//! The shell: everything that may call Redis. It decides nothing about locks.
//!
//! ```text
//! command -> request -> [change: open the key, read the clock once] -> step -> perform
//! ```

pub mod commands;
pub mod config;
pub mod datatype;
pub mod load;

mod api;
mod audience;
mod blocked;
mod change;
mod command;
mod counters;
mod ctx;
mod durations;
mod events;
mod eviction;
mod fences;
mod info_section;
mod io;
mod key;
mod metadata;
mod registry;
mod reply;
mod slots;
mod state;
mod sweep;
mod waits;
mod walk;
