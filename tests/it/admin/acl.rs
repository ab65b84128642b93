//! The ACL categories of the commands.

use dlock_testkit::{Client, Server, skip};

use crate::fixtures::user;

const WRITES: [&str; 3] = [
    "DLOCK.ACQUIRE door alice 10000",
    "DLOCK.EXTEND door alice 10000",
    "DLOCK.RELEASE door alice",
];
const READS: [&str; 3] = ["DLOCK.OWNER door", "DLOCK.INFO door", "DLOCK.HELP"];

#[track_caller]
fn assert_allowed(client: &mut Client, commands: &[&str]) {
    for command in commands {
        client.ask::<redis::Value>(command);
    }
}

#[track_caller]
fn assert_denied(client: &mut Client, commands: &[&str]) {
    for command in commands {
        client.assert_error("NOPERM", command);
    }
}

#[test]
fn acl_usual_categories_cover_commands() {
    let server = Server::start();
    if !has_categories_of_modules(&server) {
        return skip("this server has no ACL categories of modules");
    }
    let rows = [
        ("+@write", true, false),
        ("+@read", false, true),
        ("+@fast", true, true),
        ("+@all -@write", false, true),
        ("+@all -@read", true, false),
        ("+@slow", false, false),
        ("+@admin +@dangerous", false, false),
    ];
    for (rights, may_write, may_read) in rows {
        println!("{rights}");
        let mut client = user(&server, &format!("~* {rights}"));
        if may_write {
            assert_allowed(&mut client, &WRITES)
        } else {
            assert_denied(&mut client, &WRITES)
        }
        if may_read {
            assert_allowed(&mut client, &READS)
        } else {
            assert_denied(&mut client, &READS)
        }
    }
    let mut client = user(&server, "~* +@blocking");
    assert_allowed(&mut client, &WRITES[..1]);
    assert_denied(&mut client, &WRITES[1..]);
    assert_denied(&mut client, &READS);
}

#[test]
fn acl_dlock_category_covers_public_commands_only() {
    let server = Server::start();
    if !has_categories_of_modules(&server) {
        return skip("this server has no ACL categories of modules");
    }
    let mut commands: Vec<String> = server.client().ask("ACL CAT dlock");
    commands.sort();
    // Some servers leave the commands of modules out of this list, though the category has them.
    if !commands.is_empty() {
        let expected = [
            "dlock.acquire",
            "dlock.extend",
            "dlock.grants",
            "dlock.guard",
            "dlock.help",
            "dlock.info",
            "dlock.owner",
            "dlock.release",
        ];
        assert_eq!(commands, expected);
    }
    let mut client = user(&server, "~* +@dlock");
    assert_allowed(&mut client, &WRITES);
    assert_allowed(&mut client, &READS);
    assert_denied(&mut client, &["GET door", "DLOCK.APPLY door x", "DLOCK.SYNC 1 0"]);
}

/// Redis 7.0 has none. Where the server has them, the module must have made its own.
fn has_categories_of_modules(server: &Server) -> bool {
    let categories: Vec<String> = server.client().ask("ACL CAT");
    categories.contains(&"dlock".to_owned())
}

#[test]
fn grants_is_blocking_slow_and_no_write() {
    let server = Server::start();
    if !has_categories_of_modules(&server) {
        return skip("this server has no ACL categories of modules");
    }
    for (n, (rights, allowed)) in [
        ("+@blocking", true),
        ("+@slow", true),
        ("+@dlock", true),
        ("+@write", false),
        ("+@read", false),
        ("+@fast", false),
        ("+@admin +@dangerous", false),
        ("+@all -@blocking", false),
        ("+@all -@slow", false),
        ("+@all -@dlock", false),
        ("+@all -@write -@read", true),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = user(&server, rights);
        // Users with the same name: the inbox of each row has another one.
        let reply = client.call(&format!("DLOCK.GRANTS inbox{n} 0 TTL 100"));
        assert_eq!(reply.is_ok(), allowed, "{rights}: {reply:?}");
    }
}
