//! Each scenario once, with few faults: `make torture` plays them at length.

use std::path::Path;
use std::thread;

use dlock_torture::report;
use dlock_torture::scenarios::{SCENARIOS, Scenario, run_scenario};

/// Any will do: the one that a failure was seen with is printed.
const SEED: u64 = 1;

#[track_caller]
fn holds(name: &str) {
    let scenario = find(name);
    let program = Path::new(env!("CARGO_BIN_EXE_dlock-torture"));
    let verdict = run_scenario(scenario, SEED, scenario.short, program).expect("the harness works");
    assert!(verdict.grants > 0, "nobody got a lock");
    assert!(verdict.faults > 0, "nothing was done to anybody");
    assert!(
        verdict.holds(),
        "{}\n{}",
        report::row(scenario, SEED, scenario.short, &verdict),
        report::evidence(scenario, SEED, scenario.short, &verdict)
    );
}

fn find(name: &str) -> &'static Scenario {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("there is no scenario {name}"))
}

#[test]
fn clients() {
    holds("clients");
}

#[test]
fn lost_writes() {
    holds("lost_writes");
}

#[test]
fn effect_fences() {
    holds("lost_writes-fences");
}

#[test]
fn effect_no_fences() {
    holds("lost_writes-no-fences");
}

#[test]
fn network() {
    holds("network");
}

#[test]
fn eviction() {
    holds("eviction");
}

#[test]
fn clock() {
    holds("clock");
}

#[test]
fn aof_truncation() {
    holds("log-cut");
}

#[test]
fn restart_always() {
    holds("restart-always");
}

#[test]
fn restart_grace() {
    holds("restart-grace");
}

#[test]
fn restart_tail() {
    holds("restart-tail");
}

#[test]
fn restart_nothing_grace() {
    holds("restart-nothing-grace");
}

#[test]
fn restart_nothing() {
    holds("restart-nothing");
}

#[test]
fn failover_grace() {
    holds("failover-grace");
}

#[test]
fn failover() {
    holds("failover");
}

#[test]
fn failover_planned() {
    holds("failover-planned");
}

#[test]
fn partition() {
    holds("partition");
}

/// These mostly wait, for the timeouts of servers: together they take no longer than the longest.
#[test]
fn clusters_a_sentinel_and_a_lag_limit() {
    thread::scope(|scope| {
        scope.spawn(|| holds("cluster-resharding"));
        scope.spawn(|| holds("cluster-failover"));
        scope.spawn(|| holds("failover-sentinel"));
        scope.spawn(|| holds("partition-min-replicas"));
    });
}

#[test]
fn every_scenario_that_shows_something_soon_has_a_test() {
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.short > 0) {
        let call = format!("holds(\"{}\")", scenario.name);
        assert!(include_str!("short.rs").contains(&call), "{}", scenario.name);
    }
}
