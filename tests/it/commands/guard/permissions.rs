//! What a user needs: GUARD, the lock for reading, and all that the command itself needs.

use redis::Value;

use super::{guard_of, guarded_by_alice};
use crate::fixtures::user;

/// Each right that the command needs, besides +dlock.guard and %R~door.
const NEEDED: [(&str, &[&str]); 7] = [
    ("SET data 1", &["+set", "%W~data"]),
    ("GET data", &["+get", "%R~data"]),
    ("INCR data", &["+incr", "~data"]),
    ("COPY data copy", &["+copy", "%R~data", "%W~copy"]),
    ("PUBLISH news text", &["+publish", "&news"]),
    ("SPUBLISH news text", &["+spublish", "&news"]),
    ("DBSIZE", &["+dbsize"]),
];

#[test]
fn guard_needs_each_permission_of_the_command() {
    let (server, mut admin, guard) = guarded_by_alice();
    admin.ok("SET data 0");
    for (command, rights) in NEEDED {
        let command = format!("{guard} {command}");
        let all = ["+dlock.guard", "%R~door"].iter();
        let all: Vec<&str> = all.chain(rights).copied().collect();
        user(&server, &all.join(" ")).ask::<Value>(&command);
        for missing in &all {
            let rest: Vec<&str> = all.iter().filter(|right| *right != missing).copied().collect();
            let mut client = user(&server, &rest.join(" "));
            let code = client.error_code(&command);
            assert_eq!(code, "NOPERM", "{command} without {missing}");
        }
    }
}

#[test]
fn bare_guard_needs_read_permission_for_lock_only() {
    let (server, _client, guard) = guarded_by_alice();
    user(&server, "+dlock.guard %R~door").ask::<u64>(&guard);
    for rights in [
        "+dlock.guard",
        "+dlock.guard %W~door",
        "%R~door +@all -dlock.guard",
    ] {
        user(&server, rights).assert_error("NOPERM", &guard);
    }
}

#[test]
fn guard_runs_nothing_without_permission() {
    let (server, mut admin, guard) = guarded_by_alice();
    admin.ok("SET data 1");
    let mut client = user(&server, "+dlock.guard +get ~*");
    client.assert_error("NOPERM", &format!("{guard} SET data 2"));
    client.assert_error("NOPERM", &format!("{guard} FLUSHALL"));
    client.assert_error("NOPERM", &format!("{guard} CLUSTER INFO"));
    let mut client = user(&server, "+dlock.guard +@all %R~*");
    client.assert_error("NOPERM", &format!("{guard} SET data 2"));
    client.assert_error("NOPERM", &format!("{guard} SORT data STORE list"));
    assert_eq!(admin.ask::<i64>("GET data"), 1);
}

#[test]
fn guard_needs_one_selector_for_lock_and_one_for_command() {
    let (server, _client, guard) = guarded_by_alice();
    let set = format!("{guard} SET data 1");
    for rights in [
        "+ping (+dlock.guard +set %R~door ~data)",
        "(+dlock.guard %R~door) (+set ~data)",
    ] {
        user(&server, rights).ok(&set);
    }
    for rights in [
        "(+dlock.guard +set ~data) (+get %R~door)",
        "(+dlock.guard %R~door ~data) (+set ~door)",
    ] {
        user(&server, rights).assert_error("NOPERM", &set);
    }
}

#[test]
fn guard_in_script_and_transaction_has_permissions_of_caller() {
    let (server, mut admin, guard) = guarded_by_alice();
    let script = format!(
        "return redis.call('{}', 'SET', 'data', '1')",
        guard.replace(' ', "', '")
    );
    let eval: [&[u8]; 5] = [b"EVAL", script.as_bytes(), b"2", b"door", b"data"];
    let mut client = user(&server, "+eval +dlock.guard ~*");
    assert_eq!(client.error_code_args(&eval), "NOPERM");
    let replies = user(&server, "+multi +exec +dlock.guard ~*").batch(&[
        "MULTI",
        &format!("{guard} SET data 1"),
        "EXEC",
    ]);
    let is_expected = matches!(&replies[2], Value::Array(inner) if matches!(&inner[0], Value::ServerError(error) if error.code() == "NOPERM"));
    assert!(is_expected, "{replies:?}");
    assert!(!admin.exists("data"));
    user(&server, "+eval +dlock.guard +set ~*").ask_args::<Value>(&eval);
    assert!(admin.exists("data"));
}

#[test]
fn refused_permission_is_logged_by_server() {
    let (server, mut admin, _) = guarded_by_alice();
    let guard = guard_of(&mut admin, "door", "alice");
    user(&server, "+dlock.guard ~*").assert_error("NOPERM", &format!("{guard} SET data 1"));
    let log: Value = admin.ask("ACL LOG");
    assert!(format!("{log:?}").contains("set"), "{log:?}");
}
