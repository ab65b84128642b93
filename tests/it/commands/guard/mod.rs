//! DLOCK.GUARD: the check, and what it runs.

mod check;
mod inner_commands;
mod key_reporting;
mod permissions;
mod server_rules;
mod transactions;

use dlock_testkit::{Client, Server};

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
