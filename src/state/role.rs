//! The role of this server.

use dlock_core::Role;

use crate::redis::Flags;

/// As the flags of a call say.
pub fn role(flags: Flags) -> Role {
    if flags.is_loading() {
        Role::Loading
    } else if flags.is_primary() {
        Role::Primary
    } else {
        Role::Replica
    }
}
