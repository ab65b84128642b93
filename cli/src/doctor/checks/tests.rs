use std::time::Duration;

use super::super::finding::Level::{self, Note, Problem, Warning};
use super::*;
use crate::server::Fields;

/// A healthy single server.
const INFO: &str = "redis_version:7.0.15\nrole:master\nconnected_slaves:0\ndlock_locks:0\ndlock_expired:0\n\
                    dlock_released:0\ndlock_grace_left_ms:0\nused_memory:1000\nconnected_clients:3\ncluster_enabled:0\n\
                    aof_last_write_status:ok\nrdb_last_bgsave_status:ok";
const SETTINGS: &str = "appendonly:yes\nappendfsync:always\nno-appendfsync-on-rewrite:no\nsave:\nmaxmemory:0\n\
                        maxmemory-policy:noeviction\nhz:10\nmin-replicas-to-write:0\nmin-replicas-max-lag:10\n\
                        dlock.startup-grace-ms:0\ndlock.failover-grace-ms:0\ndlock.max-lease-ms:86400000\n\
                        dlock.allow-eviction:no\nmaxclients:10000\n\
                        dlock.max-waiters-per-lock:10000\ndlock.deadlock-detection:yes\ndlock.quorum:yes\n\
                        dlock.keep-fence:yes";

/// A healthy server, changed by lines of INFO, settings and other facts.
fn server(info: &str, settings: &str, change: impl FnOnce(&mut Facts)) -> Facts {
    let with = |base: &str, lines: &str| Fields::parse(&format!("{base}\n{}", lines.replace(' ', "\n")));
    let mut facts = Facts {
        server: "one:6379".to_owned(),
        info: with(INFO, info),
        config: with(SETTINGS, settings),
        module_version: Some(100),
        clock_ahead_ms: Some(3),
        ..Facts::default()
    };
    change(&mut facts);
    facts
}

#[track_caller]
fn level(facts: &Facts, name: &str) -> Level {
    let findings = check(facts, std::slice::from_ref(facts));
    let found = findings.iter().find(|finding| finding.check == name);
    // No finding means that all is well.
    found.map_or(Level::Ok, |finding| finding.level)
}

#[test]
fn healthy_server_has_no_warnings() {
    let findings = check(&server("", "", |_| ()), &[]);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.level > Note).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let checked: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    let expected = "module version permissions eviction persistence replicas timers clock";
    assert_eq!(checked.join(" "), expected);
}

/// The check, what INFO says, the settings, how bad that is.
const CASES: &str = "
version | redis_version:6.2.7 | | problem
version | valkey_version:7.2.5 | | problem
version | valkey_version:8.0.1 | | ok
slot migration | cluster_enabled:1 redis_version:8.4.0 | | warning
slot migration | cluster_enabled:1 redis_version:8.2.9 | | ok
slot migration | cluster_enabled:1 redis_version:7.2.4 valkey_version:9.1.2 | | ok
slot migration | redis_version:10.0.0 | | ok
role | role:slave master_link_status:up | | ok
role | role:slave master_link_status:down | | warning
eviction | | maxmemory:100000 maxmemory-policy:allkeys-lru | problem
eviction | | maxmemory:100000 maxmemory-policy:allkeys-lru dlock.allow-eviction:yes | problem
eviction | | maxmemory:0 maxmemory-policy:allkeys-lru | ok
eviction | | maxmemory:100000 maxmemory-policy:volatile-lru | ok
startup grace | | dlock.startup-grace-ms:86400000 | ok
startup grace | | dlock.startup-grace-ms:86399999 | warning
failover grace | connected_slaves:1 | dlock.failover-grace-ms:30000 | warning
clients | | maxclients:99 | warning
clients | connected_clients:899 | maxclients:1000 | ok
clients | connected_clients:900 | maxclients:1000 | warning
queue limit | | dlock.max-waiters-per-lock:0 | warning
TLS | | port:6379 tls-port:6380 | note
TLS | | port:0 tls-port:6380 | ok
deadlock detection | | dlock.deadlock-detection:no | note
memory | used_memory:89999 | maxmemory:100000 | ok
memory | used_memory:90000 | maxmemory:100000 | warning
persistence | |  | ok
persistence | | no-appendfsync-on-rewrite:yes | warning
persistence | | appendfsync:everysec | warning
persistence | | appendfsync:everysec dlock.startup-grace-ms:30000 | ok
persistence | | appendonly:no | problem
persistence | | appendonly:no dlock.startup-grace-ms:-1 | ok
persistence | | appendonly:no save:60 | problem
disk | aof_last_write_status:err | | problem
disk | rdb_last_bgsave_status:err | | problem
replicas | |  | note
replicas | connected_slaves:2 | | ok
replicas | connected_slaves:1 min_slaves_good_slaves:1 | min-replicas-to-write:1 | ok
replicas | connected_slaves:1 min_slaves_good_slaves:0 | min-replicas-to-write:1 | problem
isolated primary | connected_slaves:1 | | warning
isolated primary | connected_slaves:1 cluster_enabled:1 | | ok
isolated primary | connected_slaves:1 | min-replicas-to-write:1 | warning
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:0 | warning
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:3 | ok
failover grace | |  | ok
failover grace | connected_slaves:1 | | warning
failover grace | connected_slaves:1 | dlock.failover-grace-ms:30000 dlock.max-lease-ms:30000 | ok
failover grace | role:slave master_link_status:up | | warning
grace period | dlock_grace_left_ms:1 | | warning
long grace | | dlock.startup-grace-ms:-1 | warning
long grace | | dlock.failover-grace-ms:-1 dlock.max-lease-ms:120001 | warning
long grace | | dlock.failover-grace-ms:-1 dlock.max-lease-ms:120000 | ok
long grace | | dlock.failover-grace-ms:120001 | warning
long grace | | dlock.startup-grace-ms:120000 | ok
timers | | hz:9 | warning
timers | | hz:100 | ok
limits | dlock_limit_mismatches:1 | | warning
limits | dlock_limit_mismatches:0 | | ok
limits | | | ok
expired leases | dlock_expired:9 | | ok
expired leases | dlock_expired:10 dlock_released:100 | | ok
expired leases | dlock_expired:11 dlock_released:100 | | warning
config | | appendonly: | warning";

#[test]
fn every_fact_has_the_expected_level() {
    for case in CASES.lines().skip(1) {
        let fields: Vec<&str> = case.split('|').map(str::trim).collect();
        let [check, info, settings, expected] = fields[..] else {
            panic!("{case}");
        };
        assert_eq!(
            level(&server(info, settings, |_| ()), check).name(),
            expected,
            "{case}"
        );
    }
}

#[test]
fn grace_shorter_than_running_lease_is_a_warning() {
    for (lease_s, expected) in [(30, Level::Ok), (31, Warning)] {
        let lease = |facts: &mut Facts| facts.longest_lease = Duration::from_secs(lease_s);
        let started = server("", "dlock.startup-grace-ms:30000 dlock.max-lease-ms:30000", lease);
        assert_eq!(level(&started, "startup grace"), expected, "{lease_s}");
        let settings = "dlock.failover-grace-ms:30000 dlock.max-lease-ms:30000";
        let promoted = server("connected_slaves:1", settings, lease);
        assert_eq!(level(&promoted, "failover grace"), expected, "{lease_s}");
    }
    let by_lease = server("", "dlock.startup-grace-ms:-1 dlock.max-lease-ms:1000", |facts| {
        facts.longest_lease = Duration::from_secs(31);
    });
    assert_eq!(level(&by_lease, "startup grace"), Level::Ok);
}

#[test]
fn grace_that_is_too_short_covers_no_loss() {
    for (grace_ms, is_covered) in [(30_000, true), (100, false)] {
        let settings = format!("appendonly:no dlock.startup-grace-ms:{grace_ms} dlock.max-lease-ms:30000");
        let facts = server("", &settings, |_| ());
        let findings = check(&facts, std::slice::from_ref(&facts));
        let has = |check| findings.iter().any(|finding| finding.check == check);
        assert_eq!(
            (has("persistence"), has("startup grace")),
            (is_covered, !is_covered),
            "{grace_ms}"
        );
    }
}

#[test]
fn primary_that_grants_after_sentinels_take_it_for_down_is_a_warning() {
    for (down_after_ms, expected) in [(3_000, Warning), (3_001, Level::Ok)] {
        let settings = "min-replicas-to-write:1 min-replicas-max-lag:3";
        let facts = server("connected_slaves:1", settings, |facts| {
            facts.down_after_ms = Some(down_after_ms);
        });
        assert_eq!(level(&facts, "isolated primary"), expected, "{down_after_ms}");
    }
}

#[test]
fn clock_skew_above_one_second_is_a_warning() {
    for (ahead_ms, expected) in [
        (1000, Level::Ok),
        (1001, Warning),
        (-1000, Level::Ok),
        (-1001, Warning),
    ] {
        let facts = server("", "", |facts| facts.clock_ahead_ms = Some(ahead_ms));
        assert_eq!(level(&facts, "clock"), expected, "{ahead_ms}");
    }
}

#[test]
fn cluster_with_unassigned_slots_is_a_problem() {
    let cases = [
        ("ok", "16384", Level::Ok),
        ("fail", "16384", Problem),
        ("ok", "16383", Problem),
    ];
    for (state, slots, expected) in cases {
        let facts = server("cluster_enabled:1", "", |facts| {
            facts.cluster = Fields::parse(&format!("cluster_state:{state}\ncluster_slots_assigned:{slots}"));
        });
        assert_eq!(level(&facts, "cluster"), expected, "{state} {slots}");
    }
}

#[test]
fn cluster_primary_without_replica_is_a_warning() {
    for (size, expected) in [("1", Note), ("3", Warning)] {
        let facts = server("cluster_enabled:1", "", |facts| {
            facts.cluster = Fields::parse(&format!("cluster_size:{size}"));
        });
        assert_eq!(level(&facts, "replicas"), expected, "{size}");
    }
}

#[test]
fn failed_cluster_node_is_a_warning() {
    let facts = server("cluster_enabled:1", "", |facts| {
        facts.failed_nodes = vec!["127.0.0.1:7403".to_owned()];
    });
    assert_eq!(level(&facts, "cluster nodes"), Warning);
}

#[test]
fn settings_that_differ_between_servers_are_a_warning() {
    let first = server("", "", |_| ());
    let mut second = server("", "dlock.max-lease-ms:1000", |_| ());
    second.server = "two:6379".to_owned();
    let deployment = [first.clone(), second.clone()];
    let differs = |facts: &Facts| {
        let findings = check(facts, &deployment);
        findings
            .into_iter()
            .find(|finding| finding.check == "settings differ")
    };
    assert!(differs(&first).is_none());
    let message = differs(&second).expect("a finding").message;
    assert_eq!(
        message,
        "dlock.max-lease-ms is 1000 here and 86400000 on one:6379"
    );
}

#[test]
fn locks_without_permission_are_a_note() {
    let facts = server("", "", |facts| facts.denied_locks = 2);
    assert_eq!(level(&facts, "longest lease"), Note);
}

#[test]
fn missing_permissions_are_named() {
    for (command, expected) in [("DLOCK.EXTEND", Problem), ("DLOCK.INFO", Note)] {
        let facts = server("", "", |facts| facts.denied_commands = vec![command]);
        assert_eq!(level(&facts, "permissions"), expected, "{command}");
        let findings = check(&facts, &[]);
        let rights = findings
            .iter()
            .find(|finding| finding.check == "permissions")
            .unwrap();
        assert!(rights.message.contains(command));
    }
}

#[test]
fn older_module_version_is_a_warning() {
    let old = server("", "", |_| ());
    let new = server("", "", |facts| facts.module_version = Some(101));
    let deployment = [old.clone(), new.clone()];
    assert_eq!(server::module(&old, &deployment).level, Warning);
    assert_eq!(server::module(&new, &deployment).level, Level::Ok);
}

#[test]
fn missing_server_or_module_suppresses_other_checks() {
    let facts = server("dlock_locks:", "appendonly:no", |_| ());
    let findings = check(&facts, &[]);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].check, findings[0].level), ("module", Problem));
    let away = server("", "", |facts| {
        facts.unreachable = Some("cannot connect".to_owned())
    });
    let findings = check(&away, &[]);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].check, findings[0].level), ("reachability", Problem));
    let blind = check(&Facts::default(), &[]);
    assert_eq!((blind[0].check, blind[0].level), ("info", Warning));
}

#[test]
fn every_bad_finding_has_impact_and_remedy() {
    let facts = server(
        "connected_slaves:1 min_slaves_good_slaves:0 dlock_grace_left_ms:5 dlock_expired:50 used_memory:1 \
         aof_last_write_status:err",
        "appendonly:no maxmemory:1 maxmemory-policy:allkeys-lru hz:1 min-replicas-to-write:1",
        |facts| facts.clock_ahead_ms = Some(99_000),
    );
    let findings = check(&facts, &[]);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.level > Note).collect();
    assert!(bad.len() > 8, "{bad:#?}");
    for finding in bad {
        assert!(
            !finding.impact.is_empty() && !finding.remedy.is_empty(),
            "{finding:#?}"
        );
    }
}

/// Three healthy servers of a quorum, the second changed by lines of INFO, settings and other facts.
fn quorum_with(info: &str, settings: &str, change: impl FnOnce(&mut Facts)) -> [Facts; 3] {
    let healthy = |number: u8| server(&format!("run_id:{number}"), "", |_| ());
    let second = server(&format!("run_id:2 {info}"), settings, change);
    [healthy(1), second, healthy(3)]
}

/// The checks with a finding of this level, about the servers as a whole or the second one.
fn quorum_findings(servers: &[Facts], level: Level) -> Vec<&'static str> {
    let findings = quorum::together(servers)
        .into_iter()
        .chain(quorum::check(&servers[1], servers));
    let findings = findings.filter(|finding| finding.level == level);
    findings.map(|finding| finding.check).collect()
}

#[test]
fn every_condition_of_a_quorum_is_checked() {
    let healthy = quorum_with("", "", |_| ());
    for level in [Problem, Warning, Note] {
        assert_eq!(quorum_findings(&healthy, level), [""; 0]);
    }
    let cases = [
        ("quorum", "", "dlock.quorum:no"),
        ("independence", "connected_slaves:1", ""),
        ("independence", "role:slave master_link_status:up", ""),
        ("independence", "cluster_enabled:1", ""),
        ("fences", "", "dlock.keep-fence:no"),
        ("persistence", "", "appendfsync:everysec"),
        ("startup grace", "", "appendonly:no dlock.startup-grace-ms:30000"),
        ("votes", "run_id:1", ""),
    ];
    for (check, info, settings) in cases {
        let problems = quorum_findings(&quorum_with(info, settings, |_| ()), Problem);
        assert!(problems.contains(&check), "{check}: {problems:?}");
    }
    let differs = quorum_with("", "dlock.max-lease-ms:1000", |_| ());
    assert_eq!(quorum_findings(&differs, Warning), ["settings differ"]);
}

#[test]
fn clocks_of_a_quorum_are_closer_than_its_grace() {
    for (apart_ms, grace, expected) in [
        (999, 0, false),
        (1000, 0, true),
        (4999, 5000, false),
        (5000, 5000, true),
    ] {
        let grace = format!("dlock.startup-grace-ms:{grace} dlock.max-lease-ms:5000");
        let ahead = |ms| {
            server(&format!("run_id:{ms}"), &grace, |facts| {
                facts.clock_ahead_ms = Some(ms)
            })
        };
        let servers = [ahead(0), ahead(apart_ms - 7), ahead(-7)];
        let problems = quorum_findings(&servers, Problem);
        assert_eq!(problems.contains(&"clocks"), expected, "{apart_ms} {grace}");
    }
}

#[test]
fn quorum_needs_an_odd_number_of_servers_and_a_majority_of_them() {
    let away = Facts::unreachable("away:6379".to_owned(), "cannot connect".to_owned());
    let [one, two, three] = quorum_with("", "", |_| ());
    let cases = [
        (vec![one.clone(), two.clone()], Problem, "number of servers"),
        (
            vec![one.clone(), two.clone(), three.clone(), away.clone()],
            Warning,
            "number of servers",
        ),
        (vec![one.clone(), away.clone(), three], Warning, "reachability"),
        (vec![one, away.clone(), away], Problem, "majority"),
    ];
    for (servers, level, check) in cases {
        assert!(quorum_findings(&servers, level).contains(&check), "{check}");
    }
}
