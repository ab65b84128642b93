//! Random schedules, core and model side by side, and a replica that lags.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::schedule::{DEADLOCKING, LOCKS, config, queue_schedule, queue_schedules, single_lock_schedules};
use crate::testing::{Micros, Pair, Server, execute};

/// How late the replica gets what the primary replicates, on a clock of its own.
const LATE: Micros = 20_000;
const REPLICA: Micros = -77_000_000;

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn single_lock_matches_model_in_random_schedules(schedule in single_lock_schedules()) {
        let mut pair = Pair::new(1);
        for step in schedule {
            pair.step(step);
        }
    }
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn queues_match_model_in_random_schedules(schedule in queue_schedules()) {
        let mut pair = Pair::new(LOCKS);
        let mut replica = Server::new(LOCKS, REPLICA);
        for step in schedule {
            pair.step(step);
            for sent in pair.server.take_sent() {
                execute(&mut replica, &sent, pair.server.now() + LATE);
            }
        }
        pair.finish();
    }

    /// Where a transition answers no more than one or two waiters.
    #[test]
    fn queues_that_are_answered_in_parts_match_model(schedule in queue_schedules(), max_answers in 1_usize..=2) {
        let mut pair = Pair::answering(max_answers, LOCKS);
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
    let outcome = TestRunner::new(config(10_000)).run(&queue_schedule(DEADLOCKING), |schedule| {
        let mut pair = Pair::new(LOCKS);
        for step in schedule {
            pair.step(step);
        }
        deadlocks.set(deadlocks.get() + pair.deadlocks);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(deadlocks.get() > 1_000, "the schedules have too few deadlocks");
}
