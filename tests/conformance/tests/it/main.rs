//! Every driver passes every scenario. One whose toolchain or library cannot be installed is skipped.

mod drivers;
mod failovers;
mod names;
mod wrong_drivers;

use dlock_conformance::launch::Launch;
use dlock_conformance::run::run_level;
use dlock_conformance::scenario::Level;
use dlock_testkit::skip;

/// Runs all scenarios of a level against a driver.
#[track_caller]
fn assert_passes(launch: Result<Launch, String>, level: Level) {
    assert_passes_of(launch, level, "");
}

/// As [`assert_passes`], for scenarios whose names begin so.
#[track_caller]
fn assert_passes_of(launch: Result<Launch, String>, level: Level, names: &str) {
    let launch = match launch {
        Ok(launch) => launch,
        Err(reason) => return skip(&reason),
    };
    let verdicts = run_level(level, |name| name.starts_with(names), &launch);
    let failures = verdicts.into_iter().filter_map(|verdict| {
        let error = verdict.outcome?.err()?;
        Some(format!("{}: {error}", verdict.scenario))
    });
    let failures: Vec<String> = failures.collect();
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

macro_rules! conformance {
    ($($driver:ident: $launch:expr;)*) => {
        $(mod $driver {
            use super::*;

            #[test]
            fn passes_wire_scenarios() {
                assert_passes($launch, Level::Wire);
            }

            #[test]
            fn passes_time_scenarios() {
                assert_passes($launch, Level::Time);
            }

            #[test]
            fn passes_fault_scenarios() {
                assert_passes($launch, Level::Faults);
            }

            #[test]
            fn passes_error_scenarios() {
                assert_passes($launch, Level::Errors);
            }

            #[test]
            fn passes_cause_scenarios() {
                assert_passes($launch, Level::Causes);
            }

            #[test]
            fn passes_option_scenarios() {
                assert_passes($launch, Level::Options);
            }

            #[test]
            fn passes_load_scenarios() {
                assert_passes($launch, Level::Load);
            }
        })*
    };
}

conformance! {
    rust: Ok(drivers::rust());
    rust_tokio: Ok(drivers::rust_tokio());
    python_sync: drivers::python_sync();
    python_asyncio: drivers::python_asyncio();
    go: drivers::go();
    java_async: drivers::java("async");
    java_blocking: drivers::java("blocking");
    node_ioredis: drivers::node("ioredis");
    node_redis: drivers::node("node-redis");
}
