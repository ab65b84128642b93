//! The safe face of the module API. It knows nothing of locks.

pub mod api;
pub mod command_info;
pub mod ctx;
pub mod key;
pub mod rdb;
pub mod reply;
pub mod scan;
