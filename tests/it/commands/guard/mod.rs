//! DLOCK.GUARD: the check, and what it runs.

mod check;
mod inner_commands;
mod key_reporting;
mod permissions;
mod server_rules;
mod transactions;

use dlock_testkit::{Client, Server, skip};

use crate::fixtures::held_by_alice;

/// A server where alice holds `door`, a client of it, and the words before the inner command.
fn guarded_by_alice() -> (Server, Client, String) {
    let (server, mut client) = held_by_alice();
    let guard = guard_of(&mut client, "door", "alice");
    (server, client, guard)
}

/// `DLOCK.GUARD key owner fence`, with the fence under which the owner holds the lock.
fn guard_of(client: &mut Client, key: &str, owner: &str) -> String {
    let fence = client.lock(key).holder(owner).fence;
    format!("DLOCK.GUARD {key} {owner} {fence}")
}

/// Whether the server asks the module for the keys of what GUARD runs: see `docs/commands.md`, Key reporting.
fn has_key_reporting(client: &mut Client) -> bool {
    let info: redis::Value = client.ask("COMMAND INFO dlock.guard");
    let is_reported = format!("{info:?}").contains("movablekeys");
    if !is_reported {
        skip("on this server only the lock is reported as a key");
    }
    is_reported
}
