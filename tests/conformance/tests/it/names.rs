//! A name is the same lock in every language, and whatever a client of Redis is set to.

use dlock_conformance::scenario::Level;

use crate::{assert_passes_of, drivers};

#[test]
fn name_is_the_same_lock_in_every_two_languages() {
    let pairs = [
        (Ok(drivers::rust()), drivers::python_sync()),
        (drivers::python_asyncio(), drivers::go()),
        (drivers::go(), drivers::node("ioredis")),
        (drivers::node("ioredis"), drivers::java("async")),
        (drivers::node("node-redis"), Ok(drivers::rust())),
    ];
    for (first, second) in pairs {
        // The first driver of each scenario, and the second one.
        let launch = first.and_then(|first| Ok(first.beside(second?)));
        assert_passes_of(launch, Level::Options, "name_");
    }
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
