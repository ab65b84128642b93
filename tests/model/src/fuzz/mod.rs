//! One function a fuzz target: it takes any bytes, and panics when a promise is broken.
//!
//! They need no fuzzer: the tests feed them the corpus that the fuzzer has found.

mod arguments;
mod choices;
mod holders;
mod payload;
mod replication;
mod sequence;
mod server;

pub use arguments::arguments;
pub use payload::payload;
pub use replication::replication;
pub use sequence::sequence;
