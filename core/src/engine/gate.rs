//! Whether the engine may grant a lock by itself now. The server makes sure of it only for commands of clients.

use super::host::{Flags, Host, WriteCheck};

/// When to ask again a server that cannot grant now.
pub(super) const RETRY_MS: u64 = 50;

/// What waiters are told that Redis has not unblocked itself. Valkey 9 keeps a module's clients when a cluster node becomes a
/// replica.
pub(super) const DEMOTED: &str = "UNBLOCKED this server is a replica now, ask the primary";

/// Whether the server would accept a write of this key.
pub(super) fn check<H: Host>(host: &mut H, name: H::Name<'_>, flags: Flags) -> WriteCheck {
    if !flags.is_primary() {
        return WriteCheck::Elsewhere(DEMOTED.to_owned());
    }
    if !flags.is_active_primary() || host.is_paused() {
        return WriteCheck::Refused;
    }
    host.check_write(name, flags)
}
