//! Every way through small worlds of servers, owners and failures. What is promised holds in all of them;
//! with a rule left out, or beyond the conditions of a promise, a shortest way to break it is found.
//!
//! Time is in ticks of ten seconds; leases are of one tick or two. Owners are sure of a hold from the answer
//! to the end of its lease. `cargo test --release -p dlock-model -- --ignored --nocapture` takes the larger
//! worlds.

use dlock_model::failover::{Breach, Broken, Failover, Log, OldPrimary, Setting, Watch};
use dlock_model::search::search;

/// Nothing is found broken, and the world is not a trivial one.
fn holds(name: &str, setting: &Setting) {
    let outcome = search(Failover::new(setting));
    println!("{name}: {} states", outcome.states);
    if let Some((broken, way)) = outcome.found {
        panic!("{name}: {broken:?}: {}", way.join(" | "));
    }
    assert!(outcome.states > 1_000, "{name}: {} states", outcome.states);
}

/// This is found broken first, in this shortest way.
fn breaks(setting: &Setting, expected: Broken, way: &[&str]) {
    let outcome = search(Failover::new(setting));
    println!("{} states", outcome.states);
    let (broken, found) = outcome.found.expect("a way to break it");
    assert_eq!((broken, found.join(" | ")), (expected, way.join(" | ")));
}

/// The primary dies, the replica has lost the tail of what it was told, and the grace is the longest lease.
fn failover() -> Setting {
    Setting {
        links_break: true,
        promotions: 1,
        failover_grace_ticks: 2,
        ..Setting::default()
    }
}

/// The same with SHARED requests, that need fewer grants to get into each other's way.
fn shared_failover() -> Setting {
    Setting {
        shared: true,
        grants: 2,
        ..failover()
    }
}

/// The old primary knows nothing of it, but has too few replicas to go on.
fn min_replicas() -> Setting {
    Setting {
        old_primary: OldPrimary::StopsWithoutReplicas,
        ..failover()
    }
}

/// A server starts again with a log that lacks its tail.
fn start() -> Setting {
    Setting {
        ticks: 3,
        kills: 1,
        startup_grace_ticks: 2,
        log: Log::Behind,
        ..Setting::default()
    }
}

/// A server starts again with nothing.
fn empty_start() -> Setting {
    Setting {
        ticks: 4,
        log: Log::None,
        ..start()
    }
}

/// The promoted server is killed and starts again, from a log that has all, with no grace for starts.
fn start_within_grace() -> Setting {
    Setting {
        ticks: 3,
        kills: 1,
        ..failover()
    }
}

/// A server starts with nothing, its replica gets all that it has, and takes over with no grace of its own.
fn promotion_within_grace() -> Setting {
    Setting {
        ticks: 3,
        grants: 2,
        promotions: 1,
        attach: true,
        watch: Watch::Holds,
        ..empty_start()
    }
}

/// Another replica of the first primary takes over from the one that did, and has never heard of it.
fn two_promotions() -> Setting {
    Setting {
        servers: 3,
        ticks: 2,
        grants: 2,
        promotions: 2,
        watch: Watch::Holds,
        ..failover()
    }
}

/// Only fences are looked at, so that nobody needs a grace.
fn fences_of(setting: Setting) -> Setting {
    Setting {
        startup_grace_ticks: 0,
        failover_grace_ticks: 0,
        watch: Watch::Fences,
        ..setting
    }
}

/// The old primary knows nothing of the promotion.
fn isolated(setting: Setting) -> Setting {
    Setting {
        old_primary: OldPrimary::GoesOn,
        ..setting
    }
}

fn with_clock_set_back(setting: Setting) -> Setting {
    Setting {
        clock_jumps: 1,
        ..setting
    }
}

fn without(breach: Breach, setting: Setting) -> Setting {
    Setting {
        breach: Some(breach),
        ..setting
    }
}

/// Owners extend too when they are not sure any more.
fn with_late_extends(setting: Setting) -> Setting {
    Setting {
        late_extend: true,
        ..setting
    }
}

/// What is promised, and the world in which it must hold.
type Promise = (&'static str, fn() -> Setting);

const HOLDS: [Promise; 9] = [
    ("failover, grace of the longest lease", failover),
    ("the same, EXTENDs that come too late", || {
        with_late_extends(failover())
    }),
    ("the same, SHARED too", shared_failover),
    ("an old primary that stops without replicas", min_replicas),
    ("a start with a log that lacks its tail", start),
    ("a start without data", empty_start),
    ("a start within the grace of a failover", start_within_grace),
    ("a promotion within the grace of a start", promotion_within_grace),
    ("two promotions of one ancestor", two_promotions),
];

const FENCES: [Promise; 6] = [
    ("an isolated old primary", || fences_of(isolated(failover()))),
    ("an isolated old primary that had never granted", || Setting {
        fresh: true,
        ..fences_of(isolated(failover()))
    }),
    ("a failover, the clock set back", || {
        fences_of(with_clock_set_back(failover()))
    }),
    ("a start with a log that lacks its tail", || fences_of(start())),
    ("a start with all data, the clock set back", || {
        fences_of(with_clock_set_back(Setting {
            log: Log::Always,
            ..start()
        }))
    }),
    ("a start without data", || fences_of(empty_start())),
];

#[test]
fn grace_of_longest_lease_prevents_overlap() {
    for (name, setting) in HOLDS {
        holds(name, &setting());
    }
}

#[test]
fn fences_of_isolated_primary_stay_below_new_primary() {
    for (name, setting) in FENCES {
        holds(name, &setting());
    }
}

/// The same in larger worlds: more time, more requests.
#[test]
#[ignore = "a minute in a release build: make model"]
fn guarantees_hold_in_larger_models() {
    let longer = |setting: Setting| Setting {
        ticks: setting.ticks + 1,
        ..setting
    };
    let busier = |setting: Setting| Setting {
        grants: setting.grants + 1,
        ..setting
    };
    holds("failover, longer", &longer(failover()));
    holds("failover, busier", &busier(failover()));
    holds("SHARED, busier", &busier(shared_failover()));
    holds("an old primary that stops, longer", &longer(min_replicas()));
    holds(
        "a start without data, longer and busier",
        &longer(busier(empty_start())),
    );
    holds("two promotions, longer", &longer(two_promotions()));
    holds(
        "fences of an isolated primary, longer",
        &longer(fences_of(isolated(failover()))),
    );
}

mod conditions_of_a_grace {
    use super::*;

    #[test]
    fn failover_without_grace_allows_overlap() {
        let setting = Setting {
            failover_grace_ticks: 0,
            ..failover()
        };
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }

    #[test]
    fn start_without_grace_allows_overlap() {
        let setting = Setting {
            startup_grace_ticks: 0,
            ..start()
        };
        let way = [
            "alice to 0: ACQUIRE 1",
            "0 is killed",
            "0 starts",
            "bob to 0: ACQUIRE 1",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }

    #[test]
    fn grace_shorter_than_longest_lease_allows_overlap() {
        let setting = Setting {
            failover_grace_ticks: 1,
            ..failover()
        };
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 2",
            "1 is promoted (dice 9)",
            "-- a tick --",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }

    #[test]
    fn old_primary_that_keeps_granting_allows_overlap() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "alice to 1: EXTEND 2",
            "-- a tick --",
            "bob to 0: ACQUIRE 1",
        ];
        breaks(&isolated(failover()), Broken::Overlap, &way);
    }

    #[test]
    fn stopped_old_primary_without_grace_allows_overlap() {
        let setting = Setting {
            failover_grace_ticks: 0,
            ..min_replicas()
        };
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 2",
            "-- a tick --",
            "1 is promoted (dice 9)",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }
}

/// Each rule is needed: left out, the search finds what it is for.
mod rules_left_out {
    use super::*;

    #[test]
    fn grace_forgotten_by_start_allows_overlap() {
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "cron of 1",
            "1 is killed",
            "1 starts",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(
            &without(Breach::GraceForgotten, start_within_grace()),
            Broken::Overlap,
            &way,
        );
    }

    #[test]
    fn grace_unknown_to_replica_allows_overlap() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "0 is killed",
            "0 starts",
            "1 becomes a replica of 0",
            "1 is promoted (dice 9)",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(
            &without(Breach::GraceForgotten, promotion_within_grace()),
            Broken::Overlap,
            &way,
        );
    }

    #[test]
    fn grace_without_lease_extension_allows_overlap() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "1 hears nothing any more",
            "alice to 0: EXTEND 2",
            "1 is promoted (dice 9)",
            "-- a tick --",
            "alice to 1: EXTEND 2",
        ];
        breaks(&without(Breach::NotProlonged, failover()), Broken::HoldLost, &way);
    }

    #[test]
    fn grace_that_revives_expired_lease_allows_overlap() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "1 hears nothing any more",
            "-- a tick --",
            "bob to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "alice to 1: EXTEND 2",
        ];
        let setting = without(Breach::EndedProlonged, with_late_extends(failover()));
        breaks(&setting, Broken::Overlap, &way);
    }

    #[test]
    fn reentry_in_grace_allows_overlap() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "1 hears nothing any more",
            "alice to 0: RELEASE",
            "bob to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "alice to 1: ACQUIRE 1",
        ];
        breaks(
            &without(Breach::ReentryInGrace, failover()),
            Broken::Overlap,
            &way,
        );
    }

    #[test]
    fn extend_in_grace_without_fence_allows_overlap() {
        let setting = Setting {
            shared: true,
            watch: Watch::Overlaps,
            ..without(Breach::ExtendWithoutFence, failover())
        };
        let way = [
            "alice to 0: ACQUIRE 2 SHARED",
            "1 hears nothing any more",
            "alice to 0: RELEASE",
            "alice to 0: ACQUIRE 2",
            "1 is promoted (dice 9)",
            "-- a tick --",
            "alice to 1: EXTEND 2",
            "-- a tick --",
            "bob to 1: ACQUIRE 1 SHARED",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }

    #[test]
    fn promotion_without_fence_gap_repeats_fences() {
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(
            &without(Breach::NoRaise, fences_of(failover())),
            Broken::SameFence,
            &way,
        );
    }

    #[test]
    fn promotions_without_random_bits_repeat_fences() {
        let way = [
            "1 is promoted (dice 5)",
            "alice to 1: ACQUIRE 1",
            "2 is promoted (dice 5)",
            "bob to 2: ACQUIRE 1",
        ];
        breaks(
            &without(Breach::SameDice, fences_of(two_promotions())),
            Broken::SameFence,
            &way,
        );
    }
}

/// What is not promised, with the shortest way there: the risk that is left.
mod risks_that_are_left {
    use super::*;

    /// Alice was no holder any more, and Bob was one: both was lost with the tail of the log. Leases count
    /// from the start, so that Alice's runs again. A replica that lags has the same gap, as long as the lag.
    /// So an owner must not believe an EXTEND that it sent when it was not sure any more.
    #[test]
    fn late_extend_after_start_revives_lost_expiry() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "0 writes its log",
            "-- a tick --",
            "bob to 0: ACQUIRE 1",
            "0 is killed",
            "0 starts",
            "alice to 0: EXTEND 2",
        ];
        breaks(&with_late_extends(start()), Broken::Overlap, &way);
    }

    /// The grace is in no log yet. `dlock.startup-grace-ms` closes this gap.
    #[test]
    fn server_killed_before_grace_checkpoint_restarts_without_grace() {
        let setting = Setting {
            kill_at_once: true,
            ..start_within_grace()
        };
        let way = [
            "1 hears nothing any more",
            "alice to 0: ACQUIRE 1",
            "1 is promoted (dice 9)",
            "1 is killed",
            "1 starts",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(&setting, Broken::Overlap, &way);
    }

    /// Both leap from the same fence. After 33 seconds without a raise both take the clock, and these rise.
    #[test]
    fn concurrent_promotions_differ_by_random_bits_only() {
        let way = [
            "1 is promoted (dice 9)",
            "alice to 1: ACQUIRE 1",
            "2 is promoted (dice 1)",
            "bob to 2: ACQUIRE 1",
        ];
        breaks(&fences_of(two_promotions()), Broken::FenceFell, &way);
    }

    /// For the 33 seconds of its leap a promoted server is ahead of the clock that it would start with.
    #[test]
    fn fences_after_start_without_data_soon_after_promotion_fall_behind() {
        let setting = Setting {
            kills: 1,
            log: Log::None,
            ..fences_of(failover())
        };
        let way = [
            "1 is promoted (dice 9)",
            "cron of 1",
            "alice to 1: ACQUIRE 1",
            "1 is killed",
            "1 starts",
            "bob to 1: ACQUIRE 1",
        ];
        breaks(&setting, Broken::FenceFell, &way);
    }

    #[test]
    fn fences_after_start_without_data_and_clock_set_back_fall_behind() {
        let way = [
            "alice to 0: ACQUIRE 1",
            "0 is killed",
            "all wall clocks are set back by a tick",
            "0 starts",
            "bob to 0: ACQUIRE 1",
        ];
        breaks(
            &fences_of(with_clock_set_back(empty_start())),
            Broken::FenceFell,
            &way,
        );
    }

    #[test]
    fn isolated_old_primary_that_restarts_advances_fences_to_clock() {
        let setting = Setting {
            kills: 1,
            starts_beside_another: true,
            ..fences_of(isolated(failover()))
        };
        let way = [
            "0 is killed",
            "1 is promoted (dice 9)",
            "alice to 1: ACQUIRE 1",
            "-- a tick --",
            "-- a tick --",
            "-- a tick --",
            "-- a tick --",
            "0 starts",
            "alice to 0: ACQUIRE 1",
        ];
        breaks(&setting, Broken::FenceFell, &way);
    }
}
