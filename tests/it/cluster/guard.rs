//! DLOCK.GUARD in a cluster: lock and data in one slot, on one node.

use dlock_testkit::{Client, Cluster, Server, wait_for};

/// Two nodes, and a client of the one that has the slot of `{door}`, where alice holds the lock; the words of a GUARD.
fn cluster_with_lock() -> (Cluster, usize, Client, String) {
    let cluster = Cluster::start(2);
    let here = (0..2)
        .find(|&n| cluster.client(n).call("EXISTS {door}").is_ok())
        .expect("one of the nodes has the slot");
    let mut client = cluster.client(here);
    let fence = client.acquire("{door} alice 60000").fence;
    (
        cluster,
        here,
        client,
        format!("DLOCK.GUARD {{door}} alice {fence}"),
    )
}

#[test]
fn guard_runs_command_on_keys_in_slot_of_lock() {
    let (_cluster, _, mut client, guard) = cluster_with_lock();
    client.ok(&format!("{guard} SET {{door}}data 1"));
    client.ok(&format!("{guard} MSET {{door}}data 2 {{door}}more 3"));
    let pairs: String = (0..300).map(|n| format!(" {{door}}{n} {n}")).collect();
    client.ok(&format!("{guard} MSET{pairs}"));
    assert_eq!(client.ask::<i64>(&format!("{guard} INCR {{door}}299")), 300);
    client.ask::<String>(&format!("{guard} PING"));
    assert!(client.ask::<u64>(&guard) > 0);
}

#[test]
fn guard_of_keys_in_other_slots_is_refused_as_crossslot() {
    let (cluster, here, mut client, guard) = cluster_with_lock();
    let (local, remote) = (cluster.key_on(here, "key"), cluster.key_on(1 - here, "key"));
    let many: String = (0..300).map(|n| format!(" {{door}}{n}")).collect();
    for key in [&local, &remote] {
        client.assert_error("CROSSSLOT", &format!("{guard} SET {key} 1"));
        client.assert_error("CROSSSLOT", &format!("{guard} MSET {{door}}data 1 {key} 1"));
        client.assert_error("CROSSSLOT", &format!("{guard} DEL{many} {key}"));
    }
    assert_eq!(client.ask::<i64>("DBSIZE"), 1, "the lock");
    let script = format!(
        "return redis.call('{}', 'SET', KEYS[2], 1)",
        guard.replace(' ', "', '")
    );
    client.error_code_args(&[b"EVAL", script.as_bytes(), b"2", b"{door}", remote.as_bytes()]);
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
}

#[test]
fn guard_on_other_node_is_redirected_by_moved() {
    let (cluster, here, _, guard) = cluster_with_lock();
    let mut other = cluster.client(1 - here);
    other.assert_error("MOVED", &guard);
    other.assert_error("MOVED", &format!("{guard} SET {{door}}data 1"));
}

#[test]
fn guard_while_slot_moves_needs_lock_and_data_on_one_node() {
    let (cluster, from, mut here, guard) = cluster_with_lock();
    let to = 1 - from;
    let mut there = cluster.client(to);
    here.ok("SET {door}data 1");
    let slot = cluster.begin_move("{door}", from, to);

    here.ok(&format!("{guard} SET {{door}}data 2"));
    here.assert_error("TRYAGAIN", &format!("{guard} SET {{door}}new 1"));
    there.assert_error("MOVED", &format!("{guard} SET {{door}}data 3"));

    // The lock has moved, its data has not.
    here.ok(&cluster.migrate(slot, "{door}"));
    here.assert_error("ASK", &guard);
    here.assert_error("ASK", &format!("{guard} SET {{door}}data 3"));
    there.ok("ASKING");
    there.assert_error("TRYAGAIN", &format!("{guard} SET {{door}}data 3"));
    there.ok("ASKING");
    assert!(there.ask::<u64>(&guard) > 0);
    assert_eq!(here.ask::<i64>("GET {door}data"), 2);

    // Both have.
    here.ok(&cluster.migrate(slot, "{door}data"));
    there.ok("ASKING");
    there.ok(&format!("{guard} SET {{door}}data 3"));
    for n in [to, from] {
        cluster.client(n).ok(&cluster.assign(slot));
    }
    here.assert_error("MOVED", &guard);
    there.ok(&format!("{guard} SET {{door}}new 1"));
    assert_eq!(there.ask::<i64>("GET {door}data"), 3);
}

#[test]
fn guard_checks_permissions_in_cluster() {
    let (cluster, here, mut admin, guard) = cluster_with_lock();
    let mut client = cluster.client(here);
    for (rights, code) in [
        ("+dlock.guard +set %R~{door} ~{door}data", None),
        ("+dlock.guard +set %R~{door}", Some("NOPERM")),
        ("+dlock.guard +set %R~{door} %R~{door}data", Some("NOPERM")),
        ("+dlock.guard +set ~{door}data", Some("NOPERM")),
        ("+dlock.guard %R~{door} ~{door}data", Some("NOPERM")),
    ] {
        admin.ok(&format!("ACL SETUSER guest reset on nopass {rights}"));
        client.ok("AUTH guest any");
        let command = format!("{guard} SET {{door}}data 1");
        match code {
            None => client.ok(&command),
            Some(code) => assert_eq!(client.error_code(&command), code, "{rights}"),
        }
    }
}

#[test]
fn slot_check_frees_its_memory() {
    let (_cluster, _, mut client, guard) = cluster_with_lock();
    for keys in [1, 7, 300] {
        const CALLS: usize = 500;
        let names: String = (0..keys).map(|n| format!(" {{door}}{n}")).collect();
        let batch = vec![format!("{guard} DEL{names}"); 100];
        let mut run = |calls: usize| {
            (0..calls / 100).for_each(|_| _ = client.batch(&batch));
            client.server_number::<usize>("memory", "used_memory")
        };
        let (before, after) = (run(200), run(CALLS));
        // Each key takes at least 8 bytes.
        assert!(
            after < before + CALLS * keys.max(8) * 8,
            "{keys} keys: {before} {after}"
        );
    }
}

#[test]
fn guard_in_cluster_that_hides_keys_runs_no_command() {
    let server = Server::cluster_node_with("rename-command COMMAND \"\"");
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_for("a cluster that serves all slots", || {
        client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
    });
    let fence = client.acquire("{door} alice 60000").fence;
    let guard = format!("DLOCK.GUARD {{door}} alice {fence}");
    let error = client.error(&format!("{guard} SET {{door}}data 1"));
    assert!(error.contains("do not rename COMMAND"), "{error}");
    assert!(!client.exists("{door}data"));
    assert!(client.ask::<u64>(&guard) > 0);
}

/// The I/O threads of newer servers look for the keys of commands beside the main thread, and must not call the module
/// for that: a server that does aborts within a second of this.
#[test]
fn guard_under_load_with_io_threads_does_no_harm() {
    const ROUNDS: usize = 250;
    const BATCH: usize = 4;
    const CLIENTS: usize = 24;
    let mut server = Server::cluster_node_with("io-threads 4\nappendonly yes\nappendfsync no");
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_for("a cluster that serves all slots", || {
        client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
    });
    let fence = client.acquire("{door} alice 600000").fence;
    let incr = "INCR {door}data".to_owned();
    let guarded = format!("DLOCK.GUARD {{door}} alice {fence} {incr}");
    let batches = [vec![guarded; BATCH], vec![incr; BATCH]];
    std::thread::scope(|scope| {
        for commands in batches.iter().cycle().take(CLIENTS) {
            let mut client = server.client();
            scope.spawn(move || (0..ROUNDS).for_each(|_| _ = client.batch(commands)));
        }
    });
    assert_eq!(client.ask::<usize>("GET {door}data"), CLIENTS * ROUNDS * BATCH);
    server.assert_alive();
}
