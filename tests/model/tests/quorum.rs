//! Every way through small worlds of three servers and the clients of a lock on two of them. What is promised holds in
//! all; with a rule left out, a shortest way to break it is found.
//!
//! `cargo test --release -p dlock-model --test quorum -- --ignored --nocapture` takes the larger worlds.

use dlock_core::{
    Acquire, Acquired, Effects, Instant, Limit, Lock, LockNameRef, Policy, ServerState, Timeout, Wait,
};
use dlock_model::outside::Outside;
use dlock_model::quorum::{
    Breach, QueueBreach, QueueSetting, QueueViolation, Queues, Quorum, Setting, Violation,
};
use dlock_model::search::{search, search_stuck};

#[track_caller]
fn holds(name: &str, setting: &Setting) {
    let outcome = search(Quorum::new(setting));
    println!("{name}: {} states", outcome.states);
    if let Some((violation, trace)) = outcome.found {
        panic!("{name}: {violation:?}: {}", trace.join(" | "));
    }
    assert!(outcome.states > 1_000, "{name}: {} states", outcome.states);
}

/// Without this rule, this violation is found.
#[track_caller]
fn violates(breach: Breach, setting: Setting, expected: Violation) {
    let outcome = search(Quorum::new(
        &setting.with(|setting| setting.breach = Some(breach)),
    ));
    let (violation, trace) = outcome.found.expect("a violation");
    let (states, trace) = (outcome.states, trace.join(" | "));
    println!("{breach:?}: {states} states: {violation:?}: {trace}");
    assert_eq!(violation, expected, "{trace}");
}

fn restarting() -> Setting {
    Setting::default().with(|setting| setting.restarts = 1)
}

fn one_restarting() -> Setting {
    without_lost_replies(restarting()).with(|setting| setting.restarting = 1)
}

/// Requests ask for a fence that no server has issued.
fn absurd(setting: Setting) -> Setting {
    setting.with(|setting| setting.absurd_min_fence = Some(60))
}

fn slow() -> Setting {
    Setting::default().with(|setting| setting.slow_clients = true)
}

fn without_lost_replies(setting: Setting) -> Setting {
    setting.with(|setting| setting.lost_replies = false)
}

#[test]
fn fences_rise_and_guards_exclude_each_other() {
    holds("two clients", &Setting::default());
    let no_min_fence = Setting::default().with(|setting| setting.min_fence = false);
    holds("no MINFENCE at ACQUIRE: the raise alone", &no_min_fence);
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn fences_rise_whichever_doorways_were_passed() {
    let doorway = Setting::default().with(|setting| setting.doorway = true);
    holds("through doorways", &without_lost_replies(doorway));
    holds("through doorways, replies lost", &doorway);
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn grants_that_are_given_back_and_asked_for_again_change_nothing() {
    let again = slow().with(|setting| setting.grants = [2, 1, 1]);
    holds("grants are given back", &without_lost_replies(again));
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn fences_rise_and_guards_exclude_each_other_in_larger_worlds() {
    holds("leases end during the acquisition", &slow());
    holds("any server restarts", &restarting());
    let restarting = without_lost_replies(restarting());
    let name = "any server restarts, requests for absurd fences";
    holds(name, &absurd(restarting));
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn fences_rise_over_three_clients() {
    let three = Setting {
        clients: 3,
        ..Setting::default()
    };
    holds("three clients", &without_lost_replies(three));
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn late_copies_of_requests_change_nothing() {
    let twice = Setting::default().with(|setting| setting.grants = [2; 3]);
    holds("late copies of requests", &without_lost_replies(twice));
}

mod rules_left_out {
    use super::*;

    #[test]
    fn largest_fence_without_raise_lets_fences_fall() {
        violates(Breach::NoRaise, Setting::default(), Violation::FenceFell);
    }

    #[test]
    fn raise_that_is_not_awaited_lets_fences_fall() {
        violates(Breach::RaiseNotAwaited, Setting::default(), Violation::FenceFell);
    }

    #[test]
    fn larger_fence_counted_as_confirmation_lets_fences_fall() {
        let setting = Setting::default();
        violates(Breach::LargerFenceCounts, setting, Violation::FenceFell);
    }

    #[test]
    fn raise_that_keeps_the_counter_lets_fences_fall() {
        let setting = Setting::default();
        violates(Breach::RaiseWithoutCounter, setting, Violation::FenceFell);
    }

    #[test]
    fn raise_without_hold_allows_two_guards() {
        violates(Breach::RaiseWithoutHold, slow(), Violation::TwoGuards);
    }

    #[test]
    fn unbounded_min_fence_lets_fences_fall() {
        let setting = absurd(one_restarting());
        violates(Breach::UnboundedMinFence, setting, Violation::FenceFell);
    }

    #[test]
    fn restart_without_grace_allows_two_guards() {
        violates(Breach::NoGrace, one_restarting(), Violation::TwoGuards);
    }

    #[test]
    fn clock_taken_before_grace_lets_fences_fall() {
        let setting = one_restarting();
        violates(Breach::FencesAdvancedBeforeGrace, setting, Violation::FenceFell);
    }

    #[test]
    fn guard_that_outlives_a_lease_allows_two_guards() {
        let setting = Setting::default();
        violates(Breach::GuardOutlivesLease, setting, Violation::TwoGuards);
    }
}

mod liveness {
    use super::*;

    const IN_ANY_ORDER: QueueSetting = QueueSetting {
        has_doorway: false,
        ..IN_ORDER
    };
    const IN_ORDER: QueueSetting = QueueSetting {
        servers: 3,
        clients: 4,
        has_doorway: true,
        awaits_replies: false,
        faults: 0,
        restarts: 0,
        breach: None,
    };

    /// A way to where clients wait for each other for ever.
    fn deadlock(setting: QueueSetting) -> Option<String> {
        let outcome = search_stuck(Queues::new(setting), Queues::is_over, |event| event.is_fault());
        println!("{setting:?}: {} states", outcome.states);
        outcome.found.map(|(_, trace)| trace.join(" | "))
    }

    fn violation(setting: QueueSetting) -> Option<(QueueViolation, String)> {
        let outcome = search(Queues::new(setting));
        println!("{setting:?}: {} states", outcome.states);
        outcome.found.map(|(found, trace)| (found, trace.join(" | ")))
    }

    #[test]
    fn clients_are_served_in_order_of_their_last_requests() {
        assert_eq!(violation(IN_ORDER), None);
        assert_eq!(deadlock(IN_ORDER), None);
    }

    #[test]
    fn clients_are_served_in_order_while_one_dies_or_a_server_loses_its_holder() {
        let setting = QueueSetting {
            faults: 1,
            ..IN_ORDER
        };
        assert_eq!(violation(setting), None);
        assert_eq!(deadlock(setting), None);
    }

    #[test]
    fn clients_whose_requests_arrive_in_any_order_are_all_served() {
        let three = QueueSetting {
            clients: 3,
            ..IN_ANY_ORDER
        };
        for setting in [
            IN_ANY_ORDER,
            QueueSetting { faults: 2, ..three },
            QueueSetting { restarts: 1, ..three },
        ] {
            assert_eq!(deadlock(setting), None);
        }
    }

    #[test]
    fn clients_that_keep_less_than_a_majority_wait_for_each_other() {
        let breach = Some(QueueBreach::GrantsKept);
        let trace = deadlock(QueueSetting {
            breach,
            ..IN_ANY_ORDER
        });
        println!("{}", trace.expect("a deadlock"));
    }

    /// Requests that arrived in different orders, by clients that await the replies.
    const SCRAMBLED: QueueSetting = QueueSetting {
        servers: 4,
        awaits_replies: true,
        ..IN_ANY_ORDER
    };

    #[test]
    fn clients_in_different_orders_give_up_at_most_once_each_until_one_is_served() {
        assert_eq!(violation(SCRAMBLED), None);
        assert_eq!(deadlock(SCRAMBLED), None);
    }

    #[test]
    fn clients_that_keep_other_places_give_back_again_and_again() {
        let breach = Some(QueueBreach::PlacesKept);
        let (found, trace) = violation(QueueSetting { breach, ..SCRAMBLED }).expect("a violation");
        println!("{trace}");
        assert_eq!(found, QueueViolation::NobodyServed);
    }

    #[test]
    fn client_that_does_not_ask_again_waits_forever() {
        let setting = QueueSetting {
            restarts: 3,
            breach: Some(QueueBreach::NotAskedAgain),
            ..IN_ORDER
        };
        println!("{}", deadlock(setting).expect("a deadlock"));
    }

    const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };
    const LEASE_MS: u64 = 1_000;

    static OUTSIDE: Outside = Outside::at_unix_ms(1_750_000_000_000);

    /// For how long a client waits behind dead ones that nobody has noticed. All of them have just renewed their slice.
    fn waited_behind_dead_ms(dead: usize, slice: Timeout) -> u64 {
        let (mut server, mut lock) = (ServerState::default(), Lock::default());
        let mut effects = Effects::default();
        server.set_policy(Policy {
            max_waiters_per_lock: 100,
            max_waiters: 100,
            detect_deadlocks: true,
            ..Policy::default()
        });
        let owners: Vec<String> = (0..=dead).map(|n| format!("dead{n}")).collect();
        let live = Acquire {
            owner: b"live",
            lease_ms: LEASE_MS,
            limit: Limit::MUTEX,
            wait: block(Timeout::Infinite),
            request_id: None,
            min_fence: None,
        };
        let start = OUTSIDE.inputs(Instant::default());
        for owner in &owners {
            let (owner, wait) = (owner.as_bytes(), block(slice));
            let request = Acquire { owner, wait, ..live };
            let mut transition = server.begin(&start, NAME, &mut lock, &mut effects);
            transition
                .acquire(&request, b"", true)
                .expect("room in the queue");
        }
        let mut transition = server.begin(&start, NAME, &mut lock, &mut effects);
        let queued = transition.acquire(&live, b"", true);
        assert!(matches!(queued, Ok(Acquired::Queued(_))));
        for ms in 0.. {
            let inputs = OUTSIDE.inputs(start.now.after_ms(ms));
            server.begin(&inputs, NAME, &mut lock, &mut effects).on_timer();
            if lock.holders().iter().any(|holder| holder.owner() == b"live") {
                return ms;
            }
        }
        unreachable!("a lease ends")
    }

    fn block(timeout: Timeout) -> Option<Wait<'static>> {
        Some(Wait { timeout, inbox: None })
    }

    /// The first one holds the lock already.
    #[test]
    fn dead_waiters_cost_one_lease_in_all_if_slices_are_shorter() {
        for dead in [1, 2, 64] {
            for slice_ms in [1, LEASE_MS / 3, LEASE_MS - 1] {
                assert_eq!(waited_behind_dead_ms(dead, Timeout::Ms(slice_ms)), LEASE_MS);
            }
        }
    }

    #[test]
    fn dead_waiters_without_slices_cost_a_lease_each() {
        assert_eq!(waited_behind_dead_ms(64, Timeout::Infinite), 65 * LEASE_MS);
    }
}
