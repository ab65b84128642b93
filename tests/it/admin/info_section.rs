//! The module's section of INFO.

use dlock_testkit::{Client, Server, pause, start, start_with, wait_for};

/// Current values. All other fields only grow.
const GAUGES: &str = "contended_locks evictable fence_known grace_left_ms inbox_answers inboxes locks longest_hold_ms \
                      longest_wait_ms max_lease_ms quorum sync_replicas sync_waiting waiters waiters_queued";
/// Counted in addition to another counter.
const SIDE_COUNTERS: &str = "deadlock_searches_abandoned errors_late_releases expired_contended fences_raised guards_refused \
     internal_errors limit_mismatches sync_timeouts";
/// Durations, and the number of them up to each bound.
const DURATIONS: &str = "held_ms held_ms_buckets sync_ms sync_ms_buckets waited_ms_buckets";
const COUNTERS: &str = "acquired errors_busyinbox errors_deadlock errors_err errors_noinbox errors_notheld \
                        errors_notowner errors_grace errors_queuefull errors_stale errors_evictable errors_wrongtype expired extended \
                        grants_rolled_back grants_from_queue guarded inboxes_ended not_granted reentered released wait_timeouts \
                        waited_ms";

#[test]
fn info_dlock_has_all_fields() {
    let (_server, mut client) = start();
    let section = client.info_section("dlock");
    let fields = [GAUGES, COUNTERS, SIDE_COUNTERS, DURATIONS].join(" ");
    let mut fields: Vec<_> = fields.split(' ').map(|field| format!("dlock_{field}")).collect();
    fields.sort_unstable();
    assert_eq!(section.into_keys().collect::<Vec<_>>(), fields);
    let text: String = client.ask("INFO dlock");
    assert!(text.trim_start().starts_with("# dlock"), "{text}");
}

#[test]
fn info_dlock_is_part_of_everything_and_modules() {
    let (_server, mut client) = start();
    for section in ["everything", "modules"] {
        let is_expected = client.info_section(section).contains_key("dlock_locks");
        assert!(is_expected, "INFO {section}");
    }
    for section in ["server", "default"] {
        let is_expected = !client.info_section(section).contains_key("dlock_locks");
        assert!(is_expected, "INFO {section}");
    }
}

#[test]
fn limit_that_differs_from_that_of_holders_is_counted() {
    let (_server, mut client) = start();
    let rows = [
        ("pool alice LIMIT 3", 0),
        ("pool bob LIMIT 3", 0),
        ("pool carol", 1),
        ("pool carol LIMIT 4", 1),
        ("pool carol LIMIT 4", 0),
        ("pool carol SHARED", 1),
        // An upgrade is an error.
        ("pool alice LIMIT 2", 0),
        ("pool alice LIMIT 3 REQID r1", 0),
        // Readers and writers of one lock.
        ("door alice SHARED", 0),
        ("door bob", 0),
        ("door bob SHARED", 0),
        ("door carol LIMIT 2", 1),
    ];
    for (request, expected) in rows {
        let before = client.stat("dlock_limit_mismatches");
        let (key_and_owner, options) = request.split_at(
            request
                .match_indices(' ')
                .nth(1)
                .map_or(request.len(), |(at, _)| at),
        );
        // Some are rejected.
        let _ = client.call(&format!("DLOCK.ACQUIRE {key_and_owner} 60000{options}"));
        let counted = client.stat("dlock_limit_mismatches") - before;
        assert_eq!(counted, expected, "{request}");
    }
}

#[test]
fn counters_count_only_their_event() {
    let (_server, mut client) = start();
    client.ok("SET text value");
    let rows = [
        ("DLOCK.ACQUIRE door alice 60000", "dlock_acquired"),
        ("DLOCK.ACQUIRE door alice 60000 REQID r1", "dlock_reentered"),
        ("DLOCK.ACQUIRE door bob 60000", "dlock_not_granted"),
        ("DLOCK.EXTEND door alice 70000", "dlock_extended"),
        ("DLOCK.EXTEND door alice 1", "dlock_extended"),
        ("DLOCK.GUARD door alice 1 GET data", "dlock_errors_stale"),
        ("DLOCK.EXTEND door alice 0", "dlock_errors_err"),
        ("DLOCK.ACQUIRE text alice 60000", "dlock_errors_wrongtype"),
        ("DLOCK.OWNER text", "dlock_errors_wrongtype"),
        ("DLOCK.RELEASE free alice", "dlock_errors_notheld"),
        ("DLOCK.RELEASE door bob", "dlock_errors_notowner"),
        ("DLOCK.RELEASE door alice FENCE 1", "dlock_errors_stale"),
        ("DLOCK.GRANTS inbox 1", "dlock_errors_noinbox"),
        ("DLOCK.GRANTS inbox 0 TTL 0", "dlock_inboxes_ended"),
        (
            "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1",
            "dlock_errors_noinbox",
        ),
        ("DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0", "dlock_errors_err"),
        ("DLOCK.RELEASE door alice ALL", "dlock_released"),
    ];
    for (command, counter) in rows {
        let before = counters(&mut client);
        // Errors are expected.
        let _ = client.call(command);
        let after = counters(&mut client);
        let counted = before.iter().zip(after);
        let counted = counted.map(|((name, then), (_, now))| (name.as_str(), now - then));
        let counted: Vec<_> = counted.filter(|(_, n)| *n != 0).collect();
        assert_eq!(counted, [(counter, 1)], "{command}");
    }
}

/// The counts of a histogram by their upper bound.
fn buckets(client: &mut Client, field: &str) -> Vec<(String, u64)> {
    let text = client.server_info("dlock", field);
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let counts = pairs.map(|(bound, count)| (bound.to_owned(), count.parse().expect("a number")));
    counts.collect()
}

#[test]
fn buckets_are_cumulative_and_sum_up_to_all_holds_and_waits() {
    let (server, mut client) = start();
    client.acquire("long alice 60000");
    let mut bob = server.waiter("long bob 60000 BLOCK 0");
    for field in ["dlock_held_ms_buckets", "dlock_waited_ms_buckets"] {
        let buckets = buckets(&mut client, field);
        assert_eq!(buckets.len(), 17, "{buckets:?}");
        assert!(buckets.iter().all(|(_, count)| *count == 0), "{buckets:?}");
    }
    for n in 0..5 {
        client.acquire(&format!("short{n} alice 60000"));
        client.release(&format!("short{n} alice"));
    }
    pause(600);
    client.release("long alice");
    bob.granted();
    for (field, short, all) in [("dlock_held_ms", 5, 6), ("dlock_waited_ms", 0, 1)] {
        let buckets = buckets(&mut client, &format!("{field}_buckets"));
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
        let at_most = |bound: &str| buckets.iter().find(|(other, _)| other == bound).expect(bound).1;
        assert_eq!((at_most("500"), at_most("inf")), (short, all), "{buckets:?}");
        assert!(client.stat(field) >= 600, "{field}");
    }
}

#[test]
fn longest_hold_counts_renewed_holds_until_they_end() {
    let (_server, mut client) = start();
    client.acquire("long alice 2000");
    client.acquire("other bob 2000");
    let renew = |client: &mut Client| {
        client.extend("long alice 2000");
        client.extend("other bob 2000");
        client.stat("dlock_longest_hold_ms")
    };
    wait_for("a hold of more than a lease", || renew(&mut client) > 2_200);
    let held_ms = client.lock("long").holder("alice").held_ms;
    assert!(client.stat("dlock_longest_hold_ms").unsigned_abs() >= held_ms);
    client.release("long alice");
    client.release("other bob");
    wait_for("none", || client.stat("dlock_longest_hold_ms") == 0);
}

#[test]
fn replica_does_not_count_replicated_changes() {
    let server = Server::start();
    let replica = server.replica();
    let mut client = server.client();
    client.acquire("door alice 60000");
    client.extend("door alice 70000");
    client.release("door alice");
    client.sync();
    let mut on_replica = replica.client();
    assert!(counters(&mut on_replica).iter().all(|(_, count)| *count == 0));
    let count = on_replica.stat("dlock_fence_known");
    assert_eq!(count, client.stat("dlock_fence_known"));
}

#[test]
fn crash_report_skips_module_section() {
    // The crash may have happened while the module changed the state that INFO reads.
    let (mut server, mut client) = start_with("crash-memcheck-enabled no");
    client.acquire("door alice 60000");
    client.call("DEBUG SEGFAULT").expect_err("the server has crashed");
    wait_for("the end of the server", || server.has_exited());
    let log = server.log();
    assert!(log.contains("BUG REPORT END"), "{log}");
    assert!(!log.contains("dlock_locks"), "{log}");
}

fn counters(client: &mut Client) -> Vec<(String, i64)> {
    let section = client.info_section("dlock");
    let fields = COUNTERS.split(' ').map(|field| format!("dlock_{field}"));
    fields
        .map(|field| (field.clone(), section[&field].parse().expect("a number")))
        .collect()
}
