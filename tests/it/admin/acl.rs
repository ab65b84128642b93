//! ACL: categories, single commands, key patterns.

use dlock_testkit::{Client, Server, skip, start};

use crate::fixtures::user;

const WRITES: [&str; 3] = [
    "DLOCK.ACQUIRE door alice 10000",
    "DLOCK.EXTEND door alice 10000",
    "DLOCK.RELEASE door alice",
];
const READS: [&str; 2] = ["DLOCK.OWNER door", "DLOCK.INFO door"];

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
            "dlock.guard",
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
fn acl_user_with_single_commands_is_denied_the_rest() {
    let server = Server::start();
    let mut client = user(&server, "~* +dlock.acquire +dlock.owner");
    assert_allowed(
        &mut client,
        &["DLOCK.ACQUIRE door alice 10000", "DLOCK.OWNER door"],
    );
    assert_denied(
        &mut client,
        &[
            "DLOCK.RELEASE door alice",
            "DLOCK.EXTEND door alice 10",
            "DLOCK.INFO door",
        ],
    );
}

#[test]
fn acl_key_patterns_are_enforced() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    let mut client = user(&server, "~app:* +@all");
    assert_denied(&mut client, &WRITES);
    assert_denied(&mut client, &READS);
    client.acquire("app:door alice 10000");
    client.extend("app:door alice 20000");
    assert_eq!(client.owner("app:door").as_deref(), Some("alice"));
    client.release("app:door alice");
    assert_eq!(server.client().lock("door").holder("alice").holds, 1);
}

#[test]
fn read_only_key_pattern_denies_writes() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    let mut client = user(&server, "%R~* +@all");
    assert_allowed(&mut client, &READS);
    assert_denied(&mut client, &WRITES);
}

#[test]
fn write_only_key_pattern_denies_all_commands() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    let mut client = user(&server, "%W~* +@all");
    assert_denied(&mut client, &READS);
    // Their replies show the value of the key, so they need read access as well.
    assert_denied(&mut client, &WRITES);
}

/// The user waits for locks that nobody else can see, through locks that it may not read.
#[test]
fn deadlock_error_names_no_key_that_user_may_not_read() {
    let (server, mut client) = start();
    client.acquire("pub:b carol 60000");
    client.acquire("secret:payroll alice 60000");
    let mut guest = user(&server, "~pub:* +dlock.acquire");
    guest.acquire("pub:a bob 60000");
    let _carol = server.waiter("secret:payroll carol 60000 BLOCK 0");
    let _alice = server.waiter("pub:a alice 60000 BLOCK 0");
    let cycle = |client: &mut Client| {
        let error = client.error("DLOCK.ACQUIRE pub:b bob 60000 BLOCK 0");
        let text = error.strip_prefix("DEADLOCK ").expect("a deadlock");
        let (cycle, _) = text.split_once(": release").expect("advice");
        let mut links: Vec<String> = cycle.split("; ").map(str::to_owned).collect();
        links.sort_unstable();
        links
    };
    let hidden = [
        "alice holds another lock, waits for pub:a",
        "bob holds pub:a, waits for pub:b",
        "carol holds pub:b, waits for another lock",
    ];
    assert_eq!(cycle(&mut guest), hidden);
    let all = hidden.map(|link| link.replace("another lock", "secret:payroll"));
    assert_eq!(cycle(&mut client), all);
    let mut reader = user(&server, "~pub:* %R~secret:* +dlock.acquire");
    assert_eq!(cycle(&mut reader), all);
}

#[test]
fn deadlock_error_names_no_key_of_database_that_user_may_not_select() {
    let (server, mut client) = start();
    client.acquire("pub:b bob 60000");
    client.ok("SELECT 3");
    client.acquire("pub:a alice 60000");
    let _bob = server.waiter_in(3, "pub:a bob 60000 BLOCK 0");
    let error = |rights: &str| user(&server, rights).error("DLOCK.ACQUIRE pub:b alice 60000 BLOCK 0");
    let named = error("~pub:* +dlock.acquire +select");
    let is_expected = named.contains("bob holds pub:b (db0), waits for pub:a (db3)");
    assert!(is_expected, "{named}");
    let hidden = error("~pub:* +dlock.acquire");
    let is_expected = hidden.contains("bob holds pub:b (db0), waits for another lock");
    assert!(is_expected, "{hidden}");
    if server.client().call("ACL SETUSER probe resetdbs").is_err() {
        return skip("this server has no rights to databases");
    }
    let hidden = error("~pub:* +dlock.acquire +select db=0");
    let is_expected = hidden.contains("bob holds pub:b (db0), waits for another lock");
    assert!(is_expected, "{hidden}");
}
