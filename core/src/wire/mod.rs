//! The words of the protocol: requests and their syntax, what they are answered, errors, keyspace events.

mod error;
mod event;
mod outcome;
mod parse;
mod request;

pub use error::{Error, Full};
pub use event::Event;
pub use outcome::{Acquired, Granted, MAX_AHEAD, Outcome};
pub use parse::number;
pub use request::{Acquire, Caller, Extend, GrantRef, Grants, Guard, Holds, Release, Timeout, Wait};
