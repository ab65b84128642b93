//! Positions in queues.

/// A position in a queue: a larger ticket is later. Unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);
