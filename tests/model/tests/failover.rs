//! Every schedule of small models of servers, owners and failures. The guarantees hold in all of them. With a rule
//! left out, or outside the conditions of a guarantee, the search finds a shortest counterexample.
//!
//! Time passes in ticks of ten seconds; leases are one or two ticks long. An owner is sure of a hold from the reply
//! until the lease ends. `cargo test --release -p dlock-model -- --ignored --nocapture` runs the larger models.

use dlock_model::failover::{Aof, Breach, Checked, Failover, OldPrimary, Setting, Violation};
use dlock_model::search::search;

/// No guarantee is violated, and the model is not trivial.
fn holds(name: &str, setting: &Setting) {
    let outcome = search(Failover::new(setting));
    println!("{name}: {} states", outcome.states);
    if let Some((violation, trace)) = outcome.found {
        panic!("{name}: {violation:?}: {}", trace.join(" | "));
    }
    assert!(outcome.states > 1_000, "{name}: {} states", outcome.states);
}

/// The search finds this violation, with this trace.
fn violates(setting: &Setting, expected: Violation, trace: &str) {
    let outcome = search(Failover::new(setting));
    println!("{} states", outcome.states);
    let (violation, found) = outcome.found.expect("a violation");
    assert_eq!((violation, found.join(" | ")), (expected, trace.to_owned()));
}

/// The primary dies, the replica lacks the end of the replication stream, and the grace period is the longest lease.
fn failover() -> Setting {
    Setting {
        links_break: true,
        promotions: 1,
        failover_grace_ticks: 2,
        ..Setting::default()
    }
}

/// The same with SHARED requests, which need fewer grants to conflict.
fn shared_failover() -> Setting {
    Setting {
        shared: true,
        grants: 2,
        ..failover()
    }
}

/// The old primary is isolated, and stops because it has too few replicas.
fn min_replicas() -> Setting {
    failover().with(|setting| setting.old_primary = OldPrimary::StopsWithoutReplicas)
}

/// A server restarts with a truncated AOF.
fn start() -> Setting {
    Setting {
        ticks: 3,
        kills: 1,
        startup_grace_ticks: 2,
        aof: Aof::Everysec,
        ..Setting::default()
    }
}

/// A server restarts without data.
fn empty_start() -> Setting {
    Setting {
        ticks: 4,
        aof: Aof::None,
        ..start()
    }
}

/// The promoted server is killed and restarts with a complete AOF, without a startup grace period.
fn start_within_grace() -> Setting {
    Setting {
        ticks: 3,
        kills: 1,
        ..failover()
    }
}

/// A server starts without data. Its replica does a full resync and is promoted, without a failover grace period.
fn promotion_within_grace() -> Setting {
    Setting {
        ticks: 3,
        grants: 2,
        promotions: 1,
        attach: true,
        checked: Checked::Holds,
        ..empty_start()
    }
}

/// Two replicas of the first primary are promoted one after the other. The second never connected to the first.
fn two_promotions() -> Setting {
    Setting {
        servers: 3,
        ticks: 2,
        grants: 2,
        promotions: 2,
        checked: Checked::Holds,
        ..failover()
    }
}

/// Only fences are checked, so no grace period is needed.
fn fences_of(setting: Setting) -> Setting {
    Setting {
        startup_grace_ticks: 0,
        failover_grace_ticks: 0,
        checked: Checked::Fences,
        ..setting
    }
}

/// The old primary is isolated and keeps serving.
fn isolated(setting: Setting) -> Setting {
    setting.with(|setting| setting.old_primary = OldPrimary::KeepsServing)
}

fn with_clock_set_back(setting: Setting) -> Setting {
    setting.with(|setting| setting.clock_jumps = 1)
}

fn without(breach: Breach, setting: Setting) -> Setting {
    setting.with(|setting| setting.breach = Some(breach))
}

/// Owners also extend holds that they are no longer sure of.
fn with_late_extends(setting: Setting) -> Setting {
    setting.with(|setting| setting.late_extend = true)
}

/// A server that lost its data starts with a clock that is behind. Its grace period is longer than that.
fn clock_set_back_by_less_than_grace() -> Setting {
    with_clock_set_back(empty_start()).with(|setting| setting.checked = Checked::Fences)
}

/// A name, and the model in which the guarantees must hold.
type Guarantee = (&'static str, fn() -> Setting);

const HOLDS: [Guarantee; 9] = [
    ("failover, grace period of the longest lease", failover),
    ("the same, late EXTENDs", || with_late_extends(failover())),
    ("the same, with SHARED", shared_failover),
    ("an old primary that stops without replicas", min_replicas),
    ("a start with a truncated AOF", start),
    ("a start without data", empty_start),
    ("a start within the grace of a failover", start_within_grace),
    ("a promotion within the grace of a start", promotion_within_grace),
    ("two promotions of replicas of one primary", two_promotions),
];

const FENCES: [Guarantee; 7] = [
    ("an isolated old primary", || fences_of(isolated(failover()))),
    ("an isolated old primary that had never granted a lock", || {
        fences_of(isolated(failover())).with(|setting| setting.fresh = true)
    }),
    ("a failover, the clock set back", || {
        fences_of(with_clock_set_back(failover()))
    }),
    ("a start with a truncated AOF", || fences_of(start())),
    ("a start with all data, the clock set back", || {
        fences_of(with_clock_set_back(start())).with(|setting| setting.aof = Aof::Always)
    }),
    ("a start without data", || fences_of(empty_start())),
    (
        "the same, the clock set back by less",
        clock_set_back_by_less_than_grace,
    ),
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

/// The same in larger models: more time, more requests.
#[test]
#[ignore = "a minute in a release build: make model"]
fn guarantees_hold_in_larger_models() {
    let longer = |setting: Setting| setting.with(|setting| setting.ticks += 1);
    let busier = |setting: Setting| setting.with(|setting| setting.grants += 1);
    for (name, setting) in [
        ("failover, longer", longer(failover())),
        ("failover, busier", busier(failover())),
        ("SHARED, busier", busier(shared_failover())),
        ("an old primary that stops, longer", longer(min_replicas())),
        (
            "a start without data, longer and busier",
            longer(busier(empty_start())),
        ),
        ("two promotions, longer", longer(two_promotions())),
        (
            "fences of an isolated primary, longer",
            longer(fences_of(isolated(failover()))),
        ),
    ] {
        holds(name, &setting);
    }
}

mod conditions_of_grace {
    use super::*;

    #[test]
    fn failover_without_grace_allows_overlap() {
        let setting = failover().with(|setting| setting.failover_grace_ticks = 0);
        let trace =
            "link of 1 breaks | alice to 0: ACQUIRE 1 | 1 is promoted (random 9) | bob to 1: ACQUIRE 1";
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn start_without_grace_allows_overlap() {
        let setting = start().with(|setting| setting.startup_grace_ticks = 0);
        let trace = "alice to 0: ACQUIRE 1 | 0 is killed | 0 starts | bob to 0: ACQUIRE 1";
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn grace_shorter_than_longest_lease_allows_overlap() {
        let setting = failover().with(|setting| setting.failover_grace_ticks = 1);
        let trace = "link of 1 breaks | alice to 0: ACQUIRE 2 | 1 is promoted (random 9) | -- tick -- | bob to 1: ACQUIRE 1";
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn old_primary_that_keeps_granting_allows_overlap() {
        let trace = "alice to 0: ACQUIRE 1 | 1 is promoted (random 9) | alice to 1: EXTEND 2 | -- tick -- | bob to 0: ACQUIRE 1";
        violates(&isolated(failover()), Violation::Overlap, trace);
    }

    #[test]
    fn stopped_old_primary_without_grace_allows_overlap() {
        let setting = min_replicas().with(|setting| setting.failover_grace_ticks = 0);
        let trace = "link of 1 breaks | alice to 0: ACQUIRE 2 | -- tick -- | 1 is promoted (random 9) | bob to 1: ACQUIRE 1";
        violates(&setting, Violation::Overlap, trace);
    }
}

/// Each rule is needed: without it, the search finds a counterexample.
mod rules_left_out {
    use super::*;

    #[test]
    fn grace_forgotten_by_start_allows_overlap() {
        let trace = "link of 1 breaks | alice to 0: ACQUIRE 1 | 1 is promoted (random 9) | cron of 1 | 1 is killed | 1 starts | bob to 1: ACQUIRE 1";
        let setting = without(Breach::GraceNotRestored, start_within_grace());
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn grace_unknown_to_replica_allows_overlap() {
        let trace = "alice to 0: ACQUIRE 1 | 0 is killed | 0 starts | 1 becomes a replica of 0 | 1 is promoted (random 9) | bob to 1: ACQUIRE 1";
        let setting = without(Breach::GraceNotRestored, promotion_within_grace());
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn grace_without_lease_extension_allows_overlap() {
        let trace = "alice to 0: ACQUIRE 1 | link of 1 breaks | alice to 0: EXTEND 2 | 1 is promoted (random 9) | -- tick -- | alice to 1: EXTEND 2";
        let setting = without(Breach::LeasesNotExtended, failover());
        violates(&setting, Violation::HoldLost, trace);
    }

    #[test]
    fn grace_that_revives_expired_lease_allows_overlap() {
        let trace = "alice to 0: ACQUIRE 1 | link of 1 breaks | -- tick -- | bob to 0: ACQUIRE 1 | 1 is promoted (random 9) | alice to 1: EXTEND 2";
        let setting = without(Breach::ExpiredLeasesExtended, with_late_extends(failover()));
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn reentry_in_grace_allows_overlap() {
        let trace = "alice to 0: ACQUIRE 1 | link of 1 breaks | alice to 0: RELEASE | bob to 0: ACQUIRE 1 | 1 is promoted (random 9) | alice to 1: ACQUIRE 1";
        let setting = without(Breach::ReentryInGrace, failover());
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn extend_in_grace_without_fence_allows_overlap() {
        let setting = Setting {
            shared: true,
            checked: Checked::Overlaps,
            ..without(Breach::ExtendWithoutFence, failover())
        };
        let trace = "alice to 0: ACQUIRE 2 SHARED | link of 1 breaks | alice to 0: RELEASE | alice to 0: ACQUIRE 2 | 1 is promoted (random 9) | -- tick -- | alice to 1: EXTEND 2 | -- tick -- | bob to 1: ACQUIRE 1 SHARED";
        violates(&setting, Violation::Overlap, trace);
    }

    #[test]
    fn promotion_without_fence_gap_repeats_fences() {
        let trace =
            "link of 1 breaks | alice to 0: ACQUIRE 1 | 1 is promoted (random 9) | bob to 1: ACQUIRE 1";
        let setting = without(Breach::NoFenceGap, fences_of(failover()));
        violates(&setting, Violation::SameFence, trace);
    }

    #[test]
    fn start_that_advances_fences_before_grace_repeats_fences() {
        let trace = "alice to 0: ACQUIRE 1 | 0 is killed | wall clocks are set back by a tick | 0 starts | -- tick -- | -- tick -- | alice to 0: ACQUIRE 1";
        let setting = without(
            Breach::FencesAdvancedBeforeGrace,
            clock_set_back_by_less_than_grace(),
        );
        violates(&setting, Violation::FenceFell, trace);
    }

    #[test]
    fn promotions_without_random_bits_repeat_fences() {
        let trace = "1 is promoted (random 5) | alice to 1: ACQUIRE 1 | 2 is promoted (random 5) | bob to 2: ACQUIRE 1";
        let setting = without(Breach::SameRandomBits, fences_of(two_promotions()));
        violates(&setting, Violation::SameFence, trace);
    }
}

/// Remaining risks, each with a shortest trace.
mod remaining_risks {
    use super::*;

    /// That Alice's lease expired and that Bob was granted the lock was lost with the end of the AOF. Leases start
    /// again at a start, so Alice is a holder again. The same can happen on a replica, for as long as it lags. So an
    /// owner must not rely on an EXTEND that it sent after its lease may have expired.
    #[test]
    fn late_extend_after_start_revives_lost_expiry() {
        let trace = "alice to 0: ACQUIRE 1 | 0 writes its AOF | -- tick -- | bob to 0: ACQUIRE 1 | 0 is killed | 0 starts | alice to 0: EXTEND 2";
        violates(&with_late_extends(start()), Violation::Overlap, trace);
    }

    /// The grace period is not in the AOF yet. `dlock.startup-grace-ms` closes this gap.
    #[test]
    fn server_killed_before_grace_checkpoint_restarts_without_grace() {
        let setting = start_within_grace().with(|setting| setting.kill_before_checkpoint = true);
        let trace = "link of 1 breaks | alice to 0: ACQUIRE 1 | 1 is promoted (random 9) | 1 is killed | 1 starts | bob to 1: ACQUIRE 1";
        violates(&setting, Violation::Overlap, trace);
    }

    /// Both add the promotion gap to the same fence. 33 seconds later the clock is ahead of both.
    #[test]
    fn concurrent_promotions_differ_by_random_bits_only() {
        let trace = "1 is promoted (random 9) | alice to 1: ACQUIRE 1 | 2 is promoted (random 1) | bob to 2: ACQUIRE 1";
        violates(&fences_of(two_promotions()), Violation::FenceFell, trace);
    }

    /// For 33 seconds, the promotion gap puts a promoted server ahead of the clock that it would start with.
    #[test]
    fn fences_after_start_without_data_soon_after_promotion_fall_behind() {
        let setting = Setting {
            kills: 1,
            aof: Aof::None,
            ..fences_of(failover())
        };
        let trace = "1 is promoted (random 9) | cron of 1 | alice to 1: ACQUIRE 1 | 1 is killed | 1 starts | bob to 1: ACQUIRE 1";
        violates(&setting, Violation::FenceFell, trace);
    }

    #[test]
    fn fences_after_start_without_data_and_clock_set_back_fall_behind() {
        let trace = "alice to 0: ACQUIRE 1 | 0 is killed | wall clocks are set back by a tick | 0 starts | bob to 0: ACQUIRE 1";
        let setting = fences_of(with_clock_set_back(empty_start()));
        violates(&setting, Violation::FenceFell, trace);
    }

    #[test]
    fn isolated_old_primary_that_restarts_advances_fences_to_clock() {
        let setting = Setting {
            kills: 1,
            starts_beside_another: true,
            ..fences_of(isolated(failover()))
        };
        let trace = "0 is killed | 1 is promoted (random 9) | alice to 1: ACQUIRE 1 | -- tick -- | -- tick -- | -- tick -- | -- tick -- | 0 starts | alice to 0: ACQUIRE 1";
        violates(&setting, Violation::FenceFell, trace);
    }
}
