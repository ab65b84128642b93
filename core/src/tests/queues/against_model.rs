//! Random schedules for several locks, core and model side by side.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::schedule::config;
use super::pair::Pair;
use super::schedule::{LOCKS, STUBBORN, any_schedule, schedule};

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn queues_match_model_in_random_schedules(schedule in any_schedule()) {
        let mut pair = Pair::new(LOCKS);
        for step in schedule {
            pair.step(step);
        }
        pair.finish();
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs ten thousand schedules")]
fn deadlock_search_matches_model_in_ten_thousand_schedules() {
    let deadlocks = Cell::new(0);
    let outcome = TestRunner::new(config(10_000)).run(&schedule(STUBBORN), |schedule| {
        let mut pair = Pair::new(LOCKS);
        for step in schedule {
            pair.step(step);
        }
        deadlocks.set(deadlocks.get() + pair.deadlocks);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(deadlocks.get() > 1_000, "the schedules are too tame");
}
