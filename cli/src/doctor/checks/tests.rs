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

/// A healthy server, changed by lines of INFO, settings and other facts, all as `name:value`.
fn server(info: &str, settings: &str, others: &str) -> Facts {
    let with = |base: &str, lines: &str| Fields::parse(&format!("{base}\n{}", lines.replace(' ', "\n")));
    let mut facts = Facts {
        server: "one:6379".to_owned(),
        info: with(INFO, info),
        config: with(SETTINGS, settings),
        module_version: Some(100),
        clock_ahead_ms: Some(3),
        ..Facts::default()
    };
    for (name, value) in others.split(' ').filter_map(|fact| fact.split_once(':')) {
        let ms = || value.parse().ok();
        match name {
            "lease_ms" => facts.longest_lease = Duration::from_millis(ms().unwrap_or(0) as u64),
            "down_after_ms" => facts.down_after_ms = ms(),
            "clock_ahead_ms" => facts.clock_ahead_ms = ms(),
            "module_version" => facts.module_version = value.parse().ok(),
            "failed_node" => facts.failed_nodes.push(value.to_owned()),
            "denied_locks" => facts.denied_locks = 2,
            "denied" => {
                facts.denied_commands = COMMANDS.iter().filter(|name| **name == value).copied().collect()
            }
            name => facts.cluster.0.extend([(name.to_owned(), value.to_owned())]),
        }
    }
    facts
}

const COMMANDS: [&str; 3] = ["DLOCK.EXTEND", "DLOCK.GRANTS", "DLOCK.INFO"];

/// The findings of a check. None means that all is well.
fn found<'a>(findings: &'a [Finding], check: &str) -> Option<&'a Finding> {
    findings.iter().find(|finding| finding.check == check)
}

#[test]
fn healthy_server_has_no_warnings() {
    let findings = check(&server("", "", ""), &[]);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.level > Note).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let checked: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    let expected = "module version permissions eviction persistence replicas timers clock";
    assert_eq!(checked.join(" "), expected);
}

/// The check, what INFO says, the settings, other facts, how bad that is.
const CASES: &str = "
version | redis_version:6.2.7 | | | problem
version | valkey_version:7.2.5 | | | problem
version | valkey_version:8.0.1 | | | ok
slot migration | cluster_enabled:1 redis_version:8.4.0 | | | warning
slot migration | cluster_enabled:1 redis_version:8.2.9 | | | ok
slot migration | cluster_enabled:1 redis_version:7.2.4 valkey_version:9.1.2 | | | ok
slot migration | redis_version:10.0.0 | | | ok
role | role:slave master_link_status:up | | | ok
role | role:slave master_link_status:down | | | warning
eviction | | maxmemory:100000 maxmemory-policy:allkeys-lru | | problem
eviction | | maxmemory:100000 maxmemory-policy:allkeys-lru dlock.allow-eviction:yes | | problem
eviction | | maxmemory:0 maxmemory-policy:allkeys-lru | | ok
eviction | | maxmemory:100000 maxmemory-policy:volatile-lru | | ok
startup grace | | dlock.startup-grace-ms:86400000 | | ok
startup grace | | dlock.startup-grace-ms:86399999 | | warning
failover grace | connected_slaves:1 | dlock.failover-grace-ms:30000 | | warning
clients | | maxclients:99 | | warning
clients | connected_clients:899 | maxclients:1000 | | ok
clients | connected_clients:900 | maxclients:1000 | | warning
queue limit | | dlock.max-waiters-per-lock:0 | | warning
memory | used_memory:89999 | maxmemory:100000 | | ok
memory | used_memory:90000 | maxmemory:100000 | | warning
persistence | | | | ok
persistence | | no-appendfsync-on-rewrite:yes | | warning
persistence | | appendfsync:everysec | | warning
persistence | | appendfsync:everysec dlock.startup-grace-ms:30000 | | ok
persistence | | appendonly:no | | problem
persistence | | appendonly:no dlock.startup-grace-ms:-1 | | ok
persistence | | appendonly:no save:60 | | problem
disk | aof_last_write_status:err | | | problem
disk | rdb_last_bgsave_status:err | | | problem
replicas | | | | note
replicas | connected_slaves:2 | | | ok
replicas | connected_slaves:1 min_slaves_good_slaves:1 | min-replicas-to-write:1 | | ok
replicas | connected_slaves:1 min_slaves_good_slaves:0 | min-replicas-to-write:1 | | problem
isolated primary | connected_slaves:1 | | | warning
isolated primary | connected_slaves:1 cluster_enabled:1 | | | ok
isolated primary | connected_slaves:1 | min-replicas-to-write:1 | | warning
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:0 | | warning
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:3 | | ok
failover grace | | | | ok
failover grace | connected_slaves:1 | | | warning
failover grace | connected_slaves:1 | dlock.failover-grace-ms:30000 dlock.max-lease-ms:30000 | | ok
failover grace | connected_slaves:2 | dlock.min-sync-replicas:2 | | ok
failover grace | connected_slaves:2 | dlock.min-sync-replicas:1 | | warning
replicas | connected_slaves:2 | dlock.min-sync-replicas:2 | | ok
replicas | connected_slaves:1 | dlock.min-sync-replicas:2 | | problem
failover grace | role:slave master_link_status:up | | | warning
grace period | dlock_grace_left_ms:1 | | | warning
long grace | | dlock.startup-grace-ms:-1 | | warning
long grace | | dlock.failover-grace-ms:-1 dlock.max-lease-ms:120001 | | warning
long grace | | dlock.failover-grace-ms:-1 dlock.max-lease-ms:120000 | | ok
long grace | | dlock.failover-grace-ms:120001 | | warning
long grace | | dlock.startup-grace-ms:120000 | | ok
timers | | hz:9 | | warning
timers | | hz:100 | | ok
limits | dlock_limit_mismatches:1 | | | warning
limits | dlock_limit_mismatches:0 | | | ok
limits | | | | ok
expired leases | dlock_expired:9 | | | ok
expired leases | dlock_expired:10 dlock_released:100 | | | ok
expired leases | dlock_expired:11 dlock_released:100 | | | warning
config | | appendonly: | | warning
startup grace | | dlock.startup-grace-ms:30000 dlock.max-lease-ms:30000 | lease_ms:30000 | ok
startup grace | | dlock.startup-grace-ms:30000 dlock.max-lease-ms:30000 | lease_ms:31000 | warning
startup grace | | dlock.startup-grace-ms:-1 dlock.max-lease-ms:1000 | lease_ms:31000 | ok
failover grace | connected_slaves:1 | dlock.failover-grace-ms:30000 dlock.max-lease-ms:30000 | lease_ms:31000 | warning
persistence | | appendonly:no dlock.startup-grace-ms:30000 dlock.max-lease-ms:30000 | | ok
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:3 | down_after_ms:3000 | warning
isolated primary | connected_slaves:1 | min-replicas-to-write:1 min-replicas-max-lag:3 | down_after_ms:3001 | ok
clock | | | clock_ahead_ms:1000 | ok
clock | | | clock_ahead_ms:1001 | warning
clock | | | clock_ahead_ms:-1000 | ok
clock | | | clock_ahead_ms:-1001 | warning
cluster | cluster_enabled:1 | | cluster_state:ok cluster_slots_assigned:16384 | ok
cluster | cluster_enabled:1 | | cluster_state:fail cluster_slots_assigned:16384 | problem
cluster | cluster_enabled:1 | | cluster_state:ok cluster_slots_assigned:16383 | problem
replicas | cluster_enabled:1 | | cluster_size:1 | note
replicas | cluster_enabled:1 | | cluster_size:3 | warning
cluster nodes | cluster_enabled:1 | | failed_node:127.0.0.1:7403 | warning
longest lease | | | denied_locks:2 | note
permissions | | | denied:DLOCK.EXTEND | problem
permissions | | | denied:DLOCK.GRANTS | warning
permissions | | | denied:DLOCK.INFO | note";

#[test]
fn every_fact_has_the_expected_level() {
    for case in CASES.lines().skip(1) {
        let fields: Vec<&str> = case.split('|').map(str::trim).collect();
        let [name, info, settings, others, expected] = fields[..] else {
            panic!("{case}");
        };
        let facts = server(info, settings, others);
        let findings = check(&facts, std::slice::from_ref(&facts));
        let level = found(&findings, name).map_or("ok", |finding| finding.level.name());
        assert_eq!(level, expected, "{case}");
    }
}

#[test]
fn settings_that_differ_between_servers_are_a_warning() {
    let first = server("", "", "");
    let mut second = server("", "dlock.max-lease-ms:1000", "");
    second.server = "two:6379".to_owned();
    let deployment = [first.clone(), second.clone()];
    assert_eq!(found(&check(&first, &deployment), "settings differ"), None);
    let findings = check(&second, &deployment);
    let message = &found(&findings, "settings differ").expect("a finding").message;
    assert_eq!(
        message,
        "dlock.max-lease-ms is 1000 here and 86400000 on one:6379"
    );
}

#[test]
fn older_module_version_is_a_warning() {
    let old = server("", "", "");
    let new = server("", "", "module_version:101");
    let deployment = [old.clone(), new.clone()];
    assert_eq!(server::module(&old, &deployment).level, Warning);
    assert_eq!(server::module(&new, &deployment).level, Level::Ok);
}

#[test]
fn missing_server_or_module_suppresses_other_checks() {
    let cases = [
        (server("dlock_locks:", "appendonly:no", ""), "module", Problem),
        (
            Facts::unreachable("one".to_owned(), "gone".to_owned()),
            "reachability",
            Problem,
        ),
        (Facts::default(), "info", Warning),
    ];
    for (facts, expected, level) in cases {
        let findings = check(&facts, &[]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].check, findings[0].level), (expected, level));
    }
}

/// Three healthy servers of a quorum, the second changed by lines of INFO, settings and other facts.
fn quorum_with(info: &str, settings: &str) -> [Facts; 3] {
    let healthy = |number: u8| server(&format!("run_id:{number}"), "", "");
    let second = server(&format!("run_id:2 {info}"), settings, "");
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
    let healthy = quorum_with("", "");
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
        let problems = quorum_findings(&quorum_with(info, settings), Problem);
        assert!(problems.contains(&check), "{check}: {problems:?}");
    }
    let differs = quorum_with("", "dlock.max-lease-ms:1000");
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
        let ahead = |ms| server(&format!("run_id:{ms}"), &grace, &format!("clock_ahead_ms:{ms}"));
        let servers = [ahead(0), ahead(apart_ms - 7), ahead(-7)];
        let problems = quorum_findings(&servers, Problem);
        assert_eq!(problems.contains(&"clocks"), expected, "{apart_ms} {grace}");
    }
}

#[test]
fn quorum_needs_an_odd_number_of_servers_and_a_majority_of_them() {
    let away = Facts::unreachable("away:6379".to_owned(), "cannot connect".to_owned());
    let [one, two, three] = quorum_with("", "");
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
