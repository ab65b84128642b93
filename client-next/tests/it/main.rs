//! The client against real servers.

mod acquire;
mod support;
