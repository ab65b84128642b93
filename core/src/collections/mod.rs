//! Containers for many small values, and for memory that is given back.

mod id_map;
mod inline_bytes;
mod shrink;
mod small_set;

pub use id_map::{IdHasher, IdMap};
pub use inline_bytes::InlineBytes;
pub use shrink::Shrink;
pub(crate) use small_set::SmallSet;
