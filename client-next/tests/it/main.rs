//! The client against real servers.

mod acquire;
mod dropped;
mod lost;
mod reconnect;
mod shutdown;
mod support;
