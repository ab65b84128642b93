//! Real clients: what they do, and what can be done to them.

mod actor;
mod connection;
mod crew;
mod gate;
pub mod holder;
mod route;
mod store;
mod worker;

pub use actor::{Actor, Line};
pub use connection::{Connection, Failure};
pub use crew::{Crew, Member};
pub use gate::Gate;
pub use route::{Route, Target};
pub use store::{Guard, Store};
pub use worker::Habits;
