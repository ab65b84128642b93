//! Whether the server would accept a write by a client now.

use std::ffi::CStr;

use dlock_core::engine::{Flags, LockValue, WriteCheck};

use crate::host::location::{Location, locate};
use crate::redis::{Ctx, RStr, WriteKey};

/// The internal command that does nothing.
pub const PROBE: &CStr = c"dlock.probe";

pub fn check_write(ctx: &mut Ctx<'_>, key: RStr<'_>, flags: Flags) -> WriteCheck {
    match ctx.can_write(PROBE, &[key]) {
        Ok(()) => unless_saving(ctx, key),
        Err(error) => rejected(ctx, key, flags, &error),
    }
}

fn unless_saving(ctx: &mut Ctx<'_>, key: RStr<'_>) -> WriteCheck {
    match WriteKey::<LockValue>::open(ctx, key) {
        Some(_) => WriteCheck::Accepted,
        None => WriteCheck::Later,
    }
}

fn rejected(ctx: &mut Ctx<'_>, key: RStr<'_>, flags: Flags, error: &str) -> WriteCheck {
    match code(error) {
        _ if !flags.is_cluster => WriteCheck::Refused,
        // These say nothing about where the key is.
        "NOREPLICAS" | "MISCONF" | "READONLY" | "MASTERDOWN" | "OOM" | "LOADING" => WriteCheck::Refused,
        code if is_cluster_down(code, error) => {
            WriteCheck::Unavailable("CLUSTERDOWN the cluster is down, try again".to_owned())
        }
        _ => match locate(ctx, key.bytes()) {
            // Its waiters came after ASKING. Without a key the server checks everything else.
            Location::Importing => match ctx.can_write(PROBE, &[]) {
                Ok(()) => unless_saving(ctx, key),
                Err(_) => WriteCheck::Refused,
            },
            Location::Elsewhere { slot, address } => WriteCheck::Elsewhere(format!("MOVED {slot} {address}")),
            Location::Here | Location::Unknown => WriteCheck::Unavailable(
                "TRYAGAIN the slot of this key is being migrated: try again".to_owned(),
            ),
        },
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
