//! The client against real servers.

mod acquire;
mod commands;
mod dropped;
mod fenced;
mod known_pitfalls;
mod lost;
mod many;
mod reconnect;
mod shutdown;
mod support;
