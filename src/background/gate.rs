//! Whether the module may grant a lock by itself now. The server makes sure of it only for commands of clients.

use crate::redis::{Argument, Call, Command, Ctx, Flags, KeyUse, Metadata, RStr};
use crate::state::cluster::{self, Location};
use crate::state::error::Error;

/// When to ask again a server that cannot grant now.
pub const RETRY_MS: u64 = 50;

/// Whether the server would accept a write of this key.
pub enum GrantGate {
    Open,
    /// Clients are paused, too few replicas, the disk is full, not the primary...
    Later,
    /// The key is served elsewhere: the error for the waiters.
    Elsewhere(String),
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
        match ctx.can_write(Probe::METADATA.name, &[key]) {
            Ok(()) => Self::Open,
            Err(error) => Self::refused(ctx, key, flags, &error),
        }
    }

    fn refused(ctx: &mut Ctx<'_>, key: RStr<'_>, flags: Flags, error: &str) -> Self {
        match code(error) {
            _ if !flags.is_cluster() => Self::Later,
            // These say nothing about where the key is.
            "NOREPLICAS" | "MISCONF" | "READONLY" | "MASTERDOWN" | "OOM" | "LOADING" => Self::Later,
            code if is_cluster_down(code, error) => {
                Self::Elsewhere("CLUSTERDOWN the cluster is down, try again".to_owned())
            }
            _ => match cluster::locate(ctx, key.bytes()) {
                // Its waiters came after ASKING. Without a key the server checks everything else.
                Location::Importing => match ctx.can_write(Probe::METADATA.name, &[]) {
                    Ok(()) => Self::Open,
                    Err(_) => Self::Later,
                },
                Location::Elsewhere { slot, address } => Self::Elsewhere(format!("MOVED {slot} {address}")),
                Location::Here | Location::Unknown => {
                    Self::Elsewhere("TRYAGAIN the slot of this key is on the move, try again".to_owned())
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

/// DLOCK.PROBE [key ...]
///
/// Internal: does nothing. [`GrantGate`] and GUARD call this write command, and so learn from the server whether a
/// client could write to the keys now.
pub struct Probe;

impl Command for Probe {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.probe",
        flags: c"write fast",
        arity: -1,
        summary: c"Internal: does nothing; checks whether the server accepts a write to the keys.",
        complexity: c"O(1)",
        key: Some(KeyUse::UpdateAll),
        arguments: &[Argument::key(c"key").multiple().optional()],
        categories: "write fast",
        is_public: false,
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        call.ctx.reply_ok();
        Ok(())
    }
}
