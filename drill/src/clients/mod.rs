//! Clients that record what they do, and their workload.

mod contenders;
mod gate;
mod lock_client;
mod pace;
mod wire;
mod worker;

pub use contenders::{Contenders, Plan};
pub use gate::Gate;
pub use lock_client::{Link, LockClient, Route};
pub use pace::Pace;
pub use wire::{command_args, no_reply, parse_reply};
pub use worker::{Worker, Workload};
