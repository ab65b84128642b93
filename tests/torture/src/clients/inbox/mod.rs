//! A process whose tasks wait for locks through one inbox on each server.
//!
//! - [`process`]: its tasks, and how it is told what to do.
//! - `client`, `answer`: what a client must do to be answered.
//! - `outgoing`, `node`: its requests, and the connections that carry them.
//! - `journal`: what it records, for the program that started it.

mod answer;
mod client;
mod journal;
mod node;
mod outgoing;
pub mod process;

pub use client::Mistake;
pub use journal::JournalReader;
pub use node::{InboxTimes, NodeAddress};
