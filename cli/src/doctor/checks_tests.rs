use super::super::finding::Level::{self, Good};
use super::*;
use crate::server::Fields;

/// A single server that is well kept.
const INFO: &str = "redis_version:7.0.15\nrole:master\nconnected_slaves:0\ndlock_locks:0\ndlock_expired:0\n\
                    dlock_released:0\ndlock_grace_left_ms:0\nused_memory:1000\ncluster_enabled:0\n\
                    aof_last_write_status:ok\nrdb_last_bgsave_status:ok";
const SETTINGS: &str = "appendonly:yes\nappendfsync:always\nno-appendfsync-on-rewrite:no\nsave:\nmaxmemory:0\n\
                        maxmemory-policy:noeviction\nhz:10\nmin-replicas-to-write:0\nmin-replicas-max-lag:10\n\
                        dlock.startup-grace-ms:0\ndlock.failover-grace-ms:0\ndlock.max-lease-ms:86400000\n\
                        dlock.allow-eviction:no";

/// A good server, with other lines of INFO, other settings, and other facts.
fn server(info: &str, settings: &str, change: impl FnOnce(&mut Facts)) -> Facts {
    let with = |base: &str, lines: &str| Fields::parse(&format!("{base}\n{}", lines.replace(' ', "\n")));
    let mut facts = Facts {
        server: "one:6379".to_owned(),
        info: with(INFO, info),
        settings: with(SETTINGS, settings),
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
    // A check that has nothing to say finds it good.
    found.map_or(Good, |finding| finding.level)
}

#[test]
fn a_well_kept_server_gets_no_warning() {
    let findings = check(&server("", "", |_| ()), &[]);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.level > Note).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let checked: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    let expected = [
        "module",
        "version",
        "rights",
        "eviction",
        "persistence",
        "replicas",
        "timers",
        "clock",
    ];
    assert_eq!(checked, expected);
}

#[test]
fn every_fact_has_its_finding() {
    // The check, what INFO says, the settings, how bad that is.
    let cases = [
        ("version", "redis_version:6.2.7", "", Problem),
        ("version", "valkey_version:7.2.5", "", Problem),
        ("version", "valkey_version:8.0.1", "", Good),
        ("role", "role:slave master_link_status:up", "", Good),
        ("role", "role:slave master_link_status:down", "", Warning),
        (
            "eviction",
            "",
            "maxmemory:100000 maxmemory-policy:allkeys-lru",
            Problem,
        ),
        (
            "eviction",
            "",
            "maxmemory:100000 maxmemory-policy:allkeys-lru dlock.allow-eviction:yes",
            Problem,
        ),
        ("eviction", "", "maxmemory:0 maxmemory-policy:allkeys-lru", Good),
        (
            "eviction",
            "",
            "maxmemory:100000 maxmemory-policy:volatile-lru",
            Good,
        ),
        ("memory", "used_memory:89999", "maxmemory:100000", Good),
        ("memory", "used_memory:90000", "maxmemory:100000", Warning),
        ("persistence", "", "", Good),
        ("persistence", "", "no-appendfsync-on-rewrite:yes", Warning),
        ("persistence", "", "appendfsync:everysec", Warning),
        (
            "persistence",
            "",
            "appendfsync:everysec dlock.startup-grace-ms:30000",
            Good,
        ),
        ("persistence", "", "appendonly:no", Problem),
        ("persistence", "", "appendonly:no dlock.startup-grace-ms:-1", Good),
        ("persistence", "", "appendonly:no save:60", Problem),
        ("disk", "aof_last_write_status:err", "", Problem),
        ("disk", "rdb_last_bgsave_status:err", "", Problem),
        ("replicas", "", "", Note),
        ("replicas", "connected_slaves:2", "", Good),
        (
            "replicas",
            "connected_slaves:1 min_slaves_good_slaves:1",
            "min-replicas-to-write:1",
            Good,
        ),
        (
            "replicas",
            "connected_slaves:1 min_slaves_good_slaves:0",
            "min-replicas-to-write:1",
            Problem,
        ),
        ("isolated primary", "connected_slaves:1", "", Warning),
        (
            "isolated primary",
            "connected_slaves:1 cluster_enabled:1",
            "",
            Good,
        ),
        (
            "isolated primary",
            "connected_slaves:1",
            "min-replicas-to-write:1",
            Warning,
        ),
        (
            "isolated primary",
            "connected_slaves:1",
            "min-replicas-to-write:1 min-replicas-max-lag:0",
            Warning,
        ),
        (
            "isolated primary",
            "connected_slaves:1",
            "min-replicas-to-write:1 min-replicas-max-lag:3",
            Good,
        ),
        ("failover grace", "", "", Good),
        ("failover grace", "connected_slaves:1", "", Warning),
        (
            "failover grace",
            "connected_slaves:1",
            "dlock.failover-grace-ms:30000",
            Good,
        ),
        ("failover grace", "role:slave master_link_status:up", "", Warning),
        ("grace", "dlock_grace_left_ms:1", "", Warning),
        ("longest lease", "", "dlock.startup-grace-ms:-1", Warning),
        (
            "longest lease",
            "",
            "dlock.failover-grace-ms:-1 dlock.max-lease-ms:30000",
            Good,
        ),
        ("timers", "", "hz:9", Warning),
        ("timers", "", "hz:100", Good),
        ("renewals", "dlock_expired:9", "", Good),
        ("renewals", "dlock_expired:10 dlock_released:100", "", Good),
        ("renewals", "dlock_expired:11 dlock_released:100", "", Warning),
        ("settings", "", "appendonly:", Warning),
    ];
    for (name, info, settings, expected) in cases {
        assert_eq!(
            level(&server(info, settings, |_| ()), name),
            expected,
            "{name}: {info} {settings}"
        );
    }
}

#[test]
fn a_grace_is_compared_with_the_leases_that_run() {
    for (lease_s, expected) in [(30, Good), (31, Warning)] {
        let lease = |facts: &mut Facts| facts.longest_lease = Duration::from_secs(lease_s);
        let started = server("", "dlock.startup-grace-ms:30000", lease);
        assert_eq!(level(&started, "startup grace"), expected, "{lease_s}");
        let promoted = server("connected_slaves:1", "dlock.failover-grace-ms:30000", lease);
        assert_eq!(level(&promoted, "failover grace"), expected, "{lease_s}");
    }
    let by_lease = server("", "dlock.startup-grace-ms:-1 dlock.max-lease-ms:1000", |facts| {
        facts.longest_lease = Duration::from_secs(31);
    });
    assert_eq!(level(&by_lease, "startup grace"), Good);
}

#[test]
fn clocks_may_differ_by_a_second() {
    for (ahead_ms, expected) in [(1000, Good), (1001, Warning), (-1000, Good), (-1001, Warning)] {
        let facts = server("", "", |facts| facts.clock_ahead_ms = Some(ahead_ms));
        assert_eq!(level(&facts, "clock"), expected, "{ahead_ms}");
    }
}

#[test]
fn a_cluster_has_to_serve_all_slots() {
    let cases = [
        ("ok", "16384", Good),
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
fn rights_that_are_missing_are_named() {
    for (command, expected) in [("DLOCK.EXTEND", Problem), ("DLOCK.INFO", Note)] {
        let facts = server("", "", |facts| facts.forbidden = vec![command]);
        assert_eq!(level(&facts, "rights"), expected, "{command}");
        let findings = check(&facts, &[]);
        let rights = findings.iter().find(|finding| finding.check == "rights").unwrap();
        assert!(rights.what.contains(command));
    }
}

#[test]
fn an_older_module_among_newer_ones_is_noticed() {
    let old = server("", "", |_| ());
    let new = server("", "", |facts| facts.module_version = Some(101));
    let deployment = [old.clone(), new.clone()];
    assert_eq!(module(&old, &deployment).level, Warning);
    assert_eq!(module(&new, &deployment).level, Good);
}

#[test]
fn without_server_or_module_nothing_else_matters() {
    let facts = server("dlock_locks:", "appendonly:no", |_| ());
    let findings = check(&facts, &[]);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].check, findings[0].level), ("module", Problem));
    let away = server("", "", |facts| {
        facts.out_of_reach = Some("cannot reach it".to_owned())
    });
    let findings = check(&away, &[]);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].check, findings[0].level), ("reach", Problem));
    let blind = check(&Facts::default(), &[]);
    assert_eq!((blind[0].check, blind[0].level), ("info", Warning));
}

#[test]
fn every_bad_finding_says_what_it_means() {
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
            !finding.means.is_empty() && !finding.mend.is_empty(),
            "{finding:#?}"
        );
    }
}
