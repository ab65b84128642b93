//! An inbox belongs to the database and the ACL user that made it. Categories and flags of DLOCK.GRANTS.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Delivery, Inbox, Server, Waiter, skip, start, wait_for};
use redis::Value;

use super::{held_with_inbox, shown};
use crate::fixtures::user;

/// A connection of the user eve, who may do anything.
fn eve(server: &Server) -> Waiter {
    server.client().ok("ACL SETUSER eve on nopass ~* +@all");
    let mut connection = Waiter::connect(server);
    connection.ask("AUTH eve any");
    connection
}

fn code(reply: &Value) -> &str {
    match reply {
        Value::ServerError(error) => error.code(),
        other => panic!("not an error: {other:?}"),
    }
}

#[test]
fn inbox_of_another_user_is_refused() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut eve = eve(&server);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    for command in [
        "DLOCK.GRANTS inbox 0".to_owned(),
        format!("DLOCK.GRANTS inbox {}", inbox.cursor()),
        format!("DLOCK.GRANTS inbox {} TTL 0", inbox.cursor()),
        format!("DLOCK.GRANTS inbox {} BLOCK 60000", inbox.cursor()),
        "DLOCK.GRANTS inbox 1".to_owned(),
        "DLOCK.ACQUIRE door eve 60000 QUEUE inbox 0 REQID r1".to_owned(),
        format!(
            "EVAL \"return redis.call('DLOCK.GRANTS','inbox','{}')\" 0",
            inbox.cursor()
        ),
    ] {
        assert_eq!(code(&eve.ask(&command)), "NOPERM", "{command}");
    }
    assert_eq!(client.waiting("door"), 0);
    assert_eq!(
        shown(&inbox.take(1)),
        ["granted r1 door bob"],
        "nothing was taken"
    );
}

#[test]
fn inbox_of_another_user_is_refused_in_transaction() {
    let (server, _client, mut inbox) = held_with_inbox();
    let mut eve = eve(&server);
    eve.ask("MULTI");
    eve.ask(&format!("DLOCK.GRANTS inbox {}", inbox.cursor()));
    eve.ask("DLOCK.ACQUIRE door eve 60000 QUEUE inbox 0 REQID r1");
    let Value::Array(replies) = eve.ask("EXEC") else {
        panic!("not the reply to EXEC");
    };
    assert_eq!(replies.iter().map(code).collect::<Vec<_>>(), ["NOPERM", "NOPERM"]);
    inbox.assert_empty();
}

#[test]
fn inbox_of_another_user_does_not_end_blocked_reader() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut eve = eve(&server);
    inbox.block(&mut client);
    let call = format!("DLOCK.GRANTS inbox {} BLOCK 1000", inbox.cursor());
    assert_eq!(code(&eve.ask(&call)), "NOPERM");
    assert!(inbox.connection().is_silent());
}

#[test]
fn inbox_of_user_is_open_to_all_its_connections() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let mut inbox = Inbox::make_over(eve(&server), "inbox", "TTL 60000");
    let mut requester = eve(&server);
    let before = requester.ask("DLOCK.ACQUIRE door eve 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(before, Value::Array(vec![Value::Int(0)]));
    // Not even the default user may name it.
    client.assert_error("NOPERM", "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1");
    client.assert_error("NOPERM", &format!("DLOCK.GRANTS inbox {}", inbox.cursor()));
    client.release("door alice");
    let mut reader = eve(&server);
    let reply = reader.ask(&format!("DLOCK.GRANTS inbox {}", inbox.cursor()));
    assert_eq!(shown(&Delivery::parse(&reply).answers), ["granted r1 door eve"]);
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door eve"], "not acknowledged");
}

#[test]
fn inbox_made_in_script_belongs_to_its_caller() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let mut eve = eve(&server);
    let made = eve.ask("EVAL \"return redis.call('DLOCK.GRANTS','inbox','0','TTL','60000')\" 0");
    let cursor = Delivery::parse(&made).cursor;
    client.assert_error("NOPERM", &format!("DLOCK.GRANTS inbox {cursor}"));
    Delivery::parse(&eve.ask(&format!("DLOCK.GRANTS inbox {cursor}")));
    let queued = eve.ask(
        "EVAL \"return redis.call('DLOCK.ACQUIRE','door','eve','60000','QUEUE','inbox','0','REQID','r')\" 0",
    );
    assert_eq!(queued, Value::Array(vec![Value::Int(0)]));
}

#[test]
fn inbox_of_another_database_is_refused() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut elsewhere = server.client();
    elsewhere.ok("SELECT 3");
    elsewhere.acquire("door alice 60000");
    for command in [
        "DLOCK.GRANTS inbox 0".to_owned(),
        format!("DLOCK.GRANTS inbox {}", inbox.cursor()),
        "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1".to_owned(),
    ] {
        elsewhere.assert_error("NOPERM", &command);
    }
    assert_eq!(elsewhere.waiting("door"), 0);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    inbox.granted();
}

#[test]
fn inbox_serves_database_that_made_it() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("SELECT 3");
    client.acquire("door alice 60000");
    let mut connection = Waiter::connect(&server);
    connection.ask("SELECT 3");
    let mut inbox = Inbox::make_over(connection, "inbox", "TTL 60000");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
}

#[test]
fn refused_name_is_counted_as_no_error_of_queue() {
    let (server, mut client, _inbox) = held_with_inbox();
    let before = ["dlock_errors_noinbox", "dlock_errors_busyinbox"].map(|field| client.stat(field));
    eve(&server).ask("DLOCK.GRANTS inbox 0");
    let after = ["dlock_errors_noinbox", "dlock_errors_busyinbox"].map(|field| client.stat(field));
    assert_eq!(after, before);
}

#[test]
fn inbox_of_deleted_user_ends_and_its_waiters_leave() {
    let (server, mut client, _inbox) = held_with_inbox();
    let mut inbox = Inbox::make_over(eve(&server), "eve", "TTL 60000");
    eve(&server).ask("DLOCK.ACQUIRE door eve 60000 QUEUE eve 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    inbox.send("BLOCK 60000 TTL 200");
    wait_for("a blocked reader", || {
        client.server_info("clients", "blocked_clients") == "2"
    });
    client.ask::<i64>("ACL DELUSER eve");
    assert_eq!(inbox.try_receive(), None, "the server closes its connections");
    client.release("door alice");
    carol.granted();
    assert_eq!(client.stat("dlock_inboxes"), 1);
}

#[test]
fn grants_needs_right_to_command_and_none_to_keys() {
    let server = Server::start();
    let mut client = user(&server, "+dlock.grants");
    let made = Delivery::parse(&client.ask("DLOCK.GRANTS inbox 0"));
    client.ask::<Value>(&format!("DLOCK.GRANTS inbox {}", made.cursor));
    client.assert_error("NOPERM", "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1");
    let mut client = user(&server, "~* +@all -dlock.grants");
    client.assert_error("NOPERM", "DLOCK.GRANTS other 0");
    let mut client = user(&server, "~app:* +@all");
    client.ask::<Value>("DLOCK.GRANTS third 0");
    client.assert_error("NOPERM", "DLOCK.ACQUIRE door bob 60000 QUEUE third 0 REQID r1");
}

#[test]
fn grants_is_blocking_slow_and_no_write() {
    let server = Server::start();
    let categories: Vec<String> = server.client().ask("ACL CAT");
    if !categories.contains(&"dlock".to_owned()) {
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

#[test]
fn command_info_shows_arity_flags_and_no_keys() {
    let server = Server::start();
    let mut client: Client = server.client();
    let info: Vec<Vec<Value>> = client.ask("COMMAND INFO dlock.grants");
    let info = &info[0];
    assert_eq!(info[1], Value::Int(-3));
    let flags: Vec<String> = redis::from_redis_value_ref(&info[2]).expect("flags");
    assert!(flags.contains(&"blocking".to_owned()), "{flags:?}");
    for flag in ["write", "readonly", "denyoom", "fast", "noscript", "admin"] {
        assert!(!flags.contains(&flag.to_owned()), "{flags:?}");
    }
    assert_eq!(info[3..6], [Value::Int(0), Value::Int(0), Value::Int(0)]);
    let key_specs: Vec<BTreeMap<String, Value>> = redis::from_redis_value_ref(&info[8]).expect("specs");
    assert!(key_specs.is_empty(), "{key_specs:?}");
    let getkeys = client.call("COMMAND GETKEYS DLOCK.GRANTS inbox 0");
    assert!(getkeys.is_err(), "{getkeys:?}");
    let acquire = "COMMAND GETKEYS DLOCK.ACQUIRE door bob 1000 QUEUE inbox 0 REQID r1";
    assert_eq!(client.ask::<Vec<String>>(acquire), ["door"]);
}
