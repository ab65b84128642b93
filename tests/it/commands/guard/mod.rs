//! DLOCK.GUARD: what it runs, and for whom. What passes the check is in `tests/rules`.

mod inner_commands;
mod key_reporting;
mod permissions;
mod server_rules;

use dlock_testkit::{Client, Server};

use crate::fixtures::held_by_alice;

/// A server where alice holds `door`, a client of it, and the words before the inner command.
fn guarded_by_alice() -> (Server, Client, String) {
    let (server, mut client) = held_by_alice();
    let fence = client.lock("door").holder("alice").fence;
    (server, client, format!("DLOCK.GUARD door alice {fence}"))
}
