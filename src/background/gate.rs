//! Whether the module may grant a lock by itself now. The server makes sure of it only for commands of clients.

use std::ffi::CStr;

use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, Flags, RStr, WriteKey};
use crate::state::cluster::location::{Location, locate};

/// The internal command that does nothing.
pub const PROBE: &CStr = c"dlock.probe";

/// When to ask again a server that cannot grant now.
pub const RETRY_MS: u64 = 50;

/// Whether the server would accept a write of this key.
pub enum GrantGate {
    Open,
    /// Clients are paused, too few replicas, the disk is full, not the primary, the lock is being saved...
    Later,
    /// The key is served elsewhere: the error for the waiters.
    Elsewhere(String),
    /// It may be served here again: the error for the waiters, who need not wait for that.
    Unavailable(String),
}

impl GrantGate {
    pub fn check(ctx: &mut Ctx<'_>, key: RStr<'_>, flags: Flags) -> Self {
        if !flags.is_primary() {
            // Redis has unblocked them itself. Valkey 9 keeps a module's clients when a cluster node becomes a replica.
            return Self::Elsewhere("UNBLOCKED this server is a replica now, ask the primary".to_owned());
        }
        if !flags.is_active_primary() || ctx.is_paused() {
            return Self::Later;
        }
        match ctx.can_write(PROBE, &[key]) {
            Ok(()) => Self::unless_saving(ctx, key),
            Err(error) => Self::rejected(ctx, key, flags, &error),
        }
    }

    fn unless_saving(ctx: &mut Ctx<'_>, key: RStr<'_>) -> Self {
        match WriteKey::<LockValue>::open(ctx, key) {
            Some(_) => Self::Open,
            None => Self::Later,
        }
    }

    fn rejected(ctx: &mut Ctx<'_>, key: RStr<'_>, flags: Flags, error: &str) -> Self {
        match code(error) {
            _ if !flags.is_cluster() => Self::Later,
            // These say nothing about where the key is.
            "NOREPLICAS" | "MISCONF" | "READONLY" | "MASTERDOWN" | "OOM" | "LOADING" => Self::Later,
            code if is_cluster_down(code, error) => {
                Self::Unavailable("CLUSTERDOWN the cluster is down, try again".to_owned())
            }
            _ => match locate(ctx, key.bytes()) {
                // Its waiters came after ASKING. Without a key the server checks everything else.
                Location::Importing => match ctx.can_write(PROBE, &[]) {
                    Ok(()) => Self::unless_saving(ctx, key),
                    Err(_) => Self::Later,
                },
                Location::Elsewhere { slot, address } => Self::Elsewhere(format!("MOVED {slot} {address}")),
                Location::Here | Location::Unknown => {
                    Self::Unavailable("TRYAGAIN the slot of this key is being migrated: try again".to_owned())
                }
            },
        }
    }
}

/// The first word of an error.
fn code(error: &str) -> &str {
    let error = error.strip_prefix('-').unwrap_or(error);
    error.split(' ').next().unwrap_or_default()
}

/// The reply to a call of a module has no error code for this, only a text.
fn is_cluster_down(code: &str, error: &str) -> bool {
    code == "CLUSTERDOWN" || (code == "ERR" && error.contains("while the cluster is down"))
}
