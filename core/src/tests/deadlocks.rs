//! Deadlocks by example: which requests are rejected, the cycle in the error, and the cost of the search.

use crate::names::LockName;
use crate::testing::Answer::Holds;
use crate::testing::Server;
use crate::wire::Error;

/// The text of the error. Nothing is queued.
#[track_caller]
fn rejection(server: &mut Server, command: &str) -> String {
    let before = server.state().wait_table.waiters();
    match server.call(command) {
        Err(Error::Deadlock(cycle)) => {
            assert_eq!(server.state().wait_table.waiters(), before);
            cycle.to_string()
        }
        reply => panic!("{reply:?} to {command}"),
    }
}

/// The cycle in the error, without the advice.
#[track_caller]
fn deadlock(server: &mut Server, command: &str) -> String {
    let text = rejection(server, command);
    let cycle = text.strip_suffix(": release what this owner holds, then try again");
    cycle.expect("advice that helps").to_owned()
}

#[test]
fn deadlock_message_shows_shortest_cycle() {
    let mut server = Server::with(&["a", "b", "c"]);
    for (key, owner) in [("a", "alice"), ("a", "dave"), ("b", "bob"), ("c", "carol")] {
        server.granted(&format!("ACQUIRE {key} {owner} 60000 SHARED"));
    }
    server.waits("ACQUIRE c bob 60000 BLOCK 0");
    server.waits("ACQUIRE a carol 60000 BLOCK 0");
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    assert_eq!(
        deadlock(&mut server, "ACQUIRE b alice 60000 BLOCK 0"),
        "alice waits for bob, bob waits for alice"
    );
}

/// The deadlock formed while detection was off. Alice is not part of it, but would wait as long.
#[test]
fn request_blocked_by_existing_deadlock_gets_its_cycle() {
    let mut server = Server::with(&["a", "b", "own"]);
    server.granted("ACQUIRE a bob 60000");
    server.granted("ACQUIRE b carol 60000");
    server.granted("ACQUIRE own alice 60000");
    server.waits("ACQUIRE own dave 60000 BLOCK 0");
    server.set_policy(|policy| policy.detect_deadlocks = false);
    server.waits("ACQUIRE b bob 60000 BLOCK 0");
    server.waits("ACQUIRE a carol 60000 BLOCK 0");
    server.set_policy(|policy| policy.detect_deadlocks = true);
    assert_eq!(
        rejection(&mut server, "ACQUIRE a alice 60000 BLOCK 0"),
        "bob waits for carol, carol waits for bob: \
         this request would wait for them, so try again once a lease or a timeout has broken the cycle"
    );
}

/// Owners each of which holds one lock, and all but the last of which wait for the lock of the next.
fn chain(names: &[String]) -> Server {
    let mut server = Server::with(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    for name in names {
        server.granted(&format!("ACQUIRE {name} {name} 60000"));
    }
    for pair in names.windows(2).rev() {
        server.waits(&format!("ACQUIRE {} {} 60000 BLOCK 0", pair[1], pair[0]));
    }
    server
}

#[test]
#[cfg_attr(miri, ignore = "a thousand owners")]
fn deadlock_search_of_more_than_1000_owners_is_abandoned_and_request_waits() {
    let names: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    deadlock(&mut chain(&names[..1_000]), "ACQUIRE 0 999 60000 BLOCK 0");
    let mut server = chain(&names);
    assert!(!server.effects.is_search_abandoned);
    server.waits("ACQUIRE 0 1000 60000 BLOCK 0");
    assert!(server.effects.is_search_abandoned);
}

/// Also with holders that wait for nothing, and so cannot be part of a deadlock.
#[test]
fn deadlock_search_counts_idle_holders() {
    let keys: Vec<String> = (0..31).map(|n| format!("lock{n}")).collect();
    let mut server = Server::with(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
    for key in &keys {
        for n in 0..64 {
            server.granted(&format!("ACQUIRE {key} holder{n} 60000 SHARED"));
        }
    }
    for (n, key) in keys.iter().enumerate() {
        server.waits(&format!("ACQUIRE {key} alice 60000 BLOCK 0"));
        assert_eq!(server.effects.is_search_abandoned, n == 30, "{n}");
    }
}

#[test]
fn request_that_depends_on_lock_with_too_many_holders_waits_unsearched() {
    let mut server = Server::with(&["door", "gate", "room"]);
    for n in 0..65 {
        server.granted(&format!("ACQUIRE door holder{n} 60000 SHARED"));
    }
    server.granted("ACQUIRE gate bob 60000");
    server.granted("ACQUIRE room carol 60000");
    server.waits("ACQUIRE gate holder64 60000 BLOCK 0");
    let is_abandoned = |server: &mut Server, request: &str| {
        let client = server.waits(request);
        let is_abandoned = server.effects.is_search_abandoned;
        server.disconnect(client);
        is_abandoned
    };
    // A deadlock that nobody looks for.
    assert!(is_abandoned(&mut server, "ACQUIRE door bob 60000 BLOCK 0"));
    // Carol waits for bob, and bob for the holders.
    server.waits("ACQUIRE room dave 60000 BLOCK 0");
    let bob = server.waits("ACQUIRE door bob 60000 BLOCK 0");
    assert!(is_abandoned(&mut server, "ACQUIRE gate carol 60000 BLOCK 0"));
    server.disconnect(bob);
    assert!(!is_abandoned(&mut server, "ACQUIRE gate carol 60000 BLOCK 0"));
    assert_eq!(server.call("RELEASE door holder0"), Ok(Holds(0)));
    assert_eq!(
        deadlock(&mut server, "ACQUIRE door bob 60000 BLOCK 0"),
        "bob waits for holder64, holder64 waits for bob"
    );
}

#[test]
fn deadlock_message_names_eight_owners_in_order_and_cuts_names() {
    // Each byte takes four characters.
    let names: Vec<String> = (0..10).map(|n| format!("{n}{}", "é".repeat(250))).collect();
    let shown = |n: usize| format!(r"{n}{}\xc3...", r"\xc3\xa9".repeat(31));
    let waits = |from: usize, to: usize| format!("{} waits for {}", shown(from), shown(to));
    // The request of the last owner closes the cycle: it comes first.
    let expected = |last: usize, shown: usize| {
        let others = (0..shown).map(|n| waits(n, n + 1));
        let links: Vec<String> = [waits(last, 0)].into_iter().chain(others).collect();
        links.join(", ")
    };
    let cycle_of = |owners: &[String]| {
        let last = owners.last().expect("an owner");
        let request = format!("ACQUIRE {} {last} 60000 BLOCK 0", owners[0]);
        deadlock(&mut chain(owners), &request)
    };
    assert_eq!(cycle_of(&names[..8]), expected(7, 7));
    assert_eq!(cycle_of(&names), format!("{}, and 2 more", expected(9, 6)));
}

#[test]
fn deadlock_log_line_names_lock_and_database_of_each_owner() {
    let long = format!("\"\n{}", "é".repeat(40));
    let mut server = Server::with(&["a", &long]);
    server.names.push(LockName::new(3, b"b"));
    for (key, owner) in [("a", "alice"), (&*long, "bob"), ("b", "carol")] {
        server.granted(&format!("ACQUIRE {key} {owner} 60000"));
    }
    server.waits("ACQUIRE b dave 60000 BLOCK 0");
    server.waits(&format!("ACQUIRE {long} dave 60000 BLOCK 0"));
    server.waits("ACQUIRE b alice 60000 BLOCK 0");
    let Err(Error::Deadlock(cycle)) = server.call("ACQUIRE a bob 60000 BLOCK 0") else {
        panic!("no deadlock")
    };
    assert_eq!(
        cycle.to_log_line(),
        format!(
            r#"bob waits for alice ("a" in db0), alice waits for dave ("b" in db3), dave waits for bob ("\"\n{}..." in db0)"#,
            r"\xc3\xa9".repeat(31)
        )
    );
}
