//! What happened to a lock.

/// A keyspace event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An owner became a holder.
    Acquired,
    /// A holder released its last hold.
    Released,
    /// A lease was extended.
    Extended,
    /// A holder whose lease had expired was removed.
    Expired,
}
