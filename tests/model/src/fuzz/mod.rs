//! One function per fuzz target: it takes any bytes, and panics when an invariant is violated.
//!
//! The tests run them with the corpus of the fuzzer.

mod announcement;
mod arguments;
mod choices;
mod holders;
mod inboxes;
mod payload;

pub use announcement::announcement;
pub use arguments::arguments;
pub use inboxes::inboxes;
pub use payload::payload;
