//! What a user needs: GUARD, the lock for reading, and all that the command itself needs.

use redis::Value;

use super::guarded_by_alice;
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
fn refused_permission_is_logged_by_server() {
    let (server, mut admin, guard) = guarded_by_alice();
    user(&server, "+dlock.guard ~*").assert_error("NOPERM", &format!("{guard} SET data 1"));
    let log: Value = admin.ask("ACL LOG");
    assert!(format!("{log:?}").contains("set"), "{log:?}");
}
