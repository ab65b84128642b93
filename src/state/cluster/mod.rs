//! What this node knows of its cluster: slots, and the fences of the other nodes.

pub mod fences;
pub mod location;
