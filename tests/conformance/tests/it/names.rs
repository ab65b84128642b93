//! A name is the same lock in every language, and whatever a client of Redis is set to.

use dlock_conformance::launch::Launch;
use dlock_conformance::scenario::Level;

use crate::{assert_passes_of, drivers};

/// The first driver of each scenario is this one, the second one another.
#[track_caller]
fn assert_same_names(first: Result<Launch, String>, second: Result<Launch, String>) {
    let launch = first.and_then(|first| Ok(first.beside(second?)));
    assert_passes_of(launch, Level::Options, "name_");
}

#[test]
fn name_is_the_same_lock_for_rust_and_python() {
    assert_same_names(Ok(drivers::rust()), drivers::python_sync());
}

#[test]
fn name_is_the_same_lock_for_python_and_go() {
    assert_same_names(drivers::python_asyncio(), drivers::go());
}

#[test]
fn name_is_the_same_lock_for_go_and_node() {
    assert_same_names(drivers::go(), drivers::node("ioredis"));
}

#[test]
fn name_is_the_same_lock_for_node_and_java() {
    assert_same_names(drivers::node("ioredis"), drivers::java("async"));
}

#[test]
fn name_is_the_same_lock_for_node_and_rust() {
    assert_same_names(drivers::node("node-redis"), Ok(drivers::rust()));
}

#[test]
fn name_is_the_same_lock_for_a_python_client_with_another_encoding() {
    for python in [drivers::python_sync(), drivers::python_asyncio()] {
        let launch = python.map(|python| python.clone().with_query("encoding=latin-1").beside(python));
        assert_passes_of(
            launch,
            Level::Options,
            "name_that_is_not_ascii_is_the_same_lock_for",
        );
    }
}
