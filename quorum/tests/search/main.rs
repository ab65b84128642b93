//! Every way through small worlds of three servers and two clients, each with the machine that the crate runs. What is
//! promised holds in all; with a rule left out, a shortest way to break it is found.
//!
//! `cargo test --release -p redis-dlock-quorum --test search -- --ignored --nocapture` takes the larger worlds.

mod driven;
mod servers;

use dlock_model::search::{search, search_stuck};

use driven::{ClientBreach, Driven, DrivenSetting, Violation};
use servers::{Breach, Setting};

#[track_caller]
fn holds(name: &str, setting: DrivenSetting) {
    let outcome = search(Driven::new(&setting));
    println!("{name}: {} states", outcome.states);
    if let Some((violation, trace)) = outcome.found {
        panic!("{name}: {violation:?}: {}", trace.join(" | "));
    }
    assert!(outcome.states > 1_000, "{name}: {} states", outcome.states);
}

#[track_caller]
fn violates(name: &str, setting: DrivenSetting, expected: Violation) {
    let outcome = search(Driven::new(&setting));
    let (violation, trace) = outcome.found.unwrap_or_else(|| panic!("{name}: no violation"));
    println!(
        "{name}: {} states: {violation:?}: {}",
        outcome.states,
        trace.join(" | ")
    );
    assert_eq!(violation, expected, "{name}: {}", trace.join(" | "));
}

fn attempts() -> DrivenSetting {
    DrivenSetting::default()
}

/// Guesses below, between and above the counters, at the bounds, and the same.
const GUESSES: [&[u8]; 5] = [&[1, 1], &[15, 30], &[23, 11], &[24, 27], &[60, 22]];

#[test]
fn guards_exclude_each_other_and_fences_rise_with_any_guess() {
    for guesses in GUESSES {
        let setting = DrivenSetting {
            guesses,
            ..attempts()
        };
        holds(&format!("guesses {guesses:?}"), setting);
    }
}

#[test]
fn lost_raises_change_nothing() {
    let lost = DrivenSetting {
        guesses: &[1, 1],
        lost_raises: 1,
        ..attempts()
    };
    holds("a lost raise", lost);
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn restarts_deaths_late_leases_and_waits_change_nothing() {
    let in_world = |world| DrivenSetting { world, ..attempts() };
    let restarting = in_world(Setting {
        restarts: 1,
        restarting: 1,
        ..Setting::default()
    });
    let slow = in_world(Setting {
        slow_clients: true,
        ..Setting::default()
    });
    let dying = DrivenSetting {
        deaths: 1,
        ..attempts()
    };
    let waiting = |guesses| DrivenSetting {
        guesses,
        waits: true,
        ..attempts()
    };
    for (name, setting) in [
        ("a restart", restarting),
        ("slow clients", slow),
        ("a death", dying),
        ("in the queues, far guesses", waiting(&[15, 30])),
        ("in the queues, near guesses", waiting(&[24, 22])),
    ] {
        holds(name, setting);
    }
}

#[test]
fn three_clients_exclude_each_other_and_their_fences_rise() {
    let three = DrivenSetting {
        guesses: &[15, 23, 30],
        only_requests_travel: true,
        ..attempts()
    };
    holds("three clients", three);
}

/// Clients in the queues, which were passed in order or not.
mod queues {
    use super::*;

    /// Nothing here exceeds what the servers accept.
    fn waiting(guesses: &'static [u8]) -> DrivenSetting {
        let world = Setting {
            clocks: [60; 3],
            grace: 20,
            ..Setting::default()
        };
        DrivenSetting {
            world,
            guesses,
            waits: true,
            queues_at_once: true,
            only_requests_travel: guesses.len() > 2,
            ..attempts()
        }
    }

    /// A way to where clients wait for each other for ever, or longer than they may.
    fn stuck(name: &str, setting: DrivenSetting) -> Option<String> {
        let outcome = search_stuck(Driven::new(&setting), Driven::is_over, |_| false);
        println!("{name}: {} states", outcome.states);
        outcome.found.map(|(_, trace)| trace.join(" | "))
    }

    #[test]
    fn clients_are_served_in_the_order_of_the_doorway() {
        let in_order = DrivenSetting {
            in_order: true,
            asks: 1,
            ..waiting(&[23, 23])
        };
        holds("in order", in_order);
        assert_eq!(stuck("in order", in_order), None);
    }

    #[test]
    fn clients_in_different_orders_give_up_once_and_are_served() {
        for clients in [&[23; 2][..], &[23; 3]] {
            assert_eq!(stuck("in any order", waiting(clients)), None);
        }
    }

    /// Any server restarts, with data or without, as often as this in all.
    fn restarting(restarts: u8, guesses: &'static [u8]) -> DrivenSetting {
        let setting = waiting(guesses);
        DrivenSetting {
            world: Setting {
                restarts,
                ..setting.world
            },
            only_requests_travel: true,
            asks: 4,
            ..setting
        }
    }

    #[test]
    fn client_is_served_when_servers_that_restart_are_back() {
        assert_eq!(stuck("all restart", restarting(3, &[23])), None);
        assert_eq!(stuck("one restarts", restarting(1, &[23, 23])), None);
    }

    #[test]
    fn without_a_rule_of_the_queues_clients_wait_for_ever() {
        for (breach, setting) in [
            (ClientBreach::NotAskedAgain, restarting(3, &[23])),
            (ClientBreach::GrantsKept, waiting(&[23; 3])),
            (ClientBreach::PlacesKept, waiting(&[23; 3])),
        ] {
            let breach = Some(breach);
            let way = stuck(&format!("{breach:?}"), DrivenSetting { breach, ..setting });
            println!("{}", way.expect("stuck"));
        }
    }
}

#[test]
fn without_a_rule_of_the_client_a_guarantee_is_broken() {
    use ClientBreach::*;
    for (breach, guesses, lost_raises, expected) in [
        (GuessTrusted, &[15, 15][..], 0, Violation::FenceFell),
        (RaiseNotAwaited, &[1, 1], 0, Violation::FenceFell),
        (NoRaise, &[1, 1], 0, Violation::FenceFell),
        (LargerFenceCounts, &[1, 1], 0, Violation::FenceFell),
        (RejectedRaiseRepeated, &[1, 1], 1, Violation::RaisesWithoutEnd),
        (GuardOutlivesLease, &[15, 30], 0, Violation::TwoGuards),
    ] {
        let setting = DrivenSetting {
            guesses,
            lost_raises,
            breach: Some(breach),
            ..attempts()
        };
        violates(&format!("{breach:?}"), setting, expected);
    }
}

#[test]
fn without_a_rule_of_the_servers_a_guarantee_is_broken() {
    use Breach::*;
    for (breach, guesses, restarts, expected) in [
        (RaiseWithoutCounter, &[1, 1][..], 0, Violation::FenceFell),
        (NoGrace, &[15, 30], 1, Violation::TwoGuards),
        (FencesAdvancedBeforeGrace, &[24, 1], 1, Violation::FenceFell),
        (UnboundedMinFence, &[60, 1], 1, Violation::FenceFell),
    ] {
        let world = Setting {
            restarts,
            restarting: 1,
            breach: Some(breach),
            ..Setting::default()
        };
        let setting = DrivenSetting {
            world,
            guesses,
            ..attempts()
        };
        violates(&format!("{breach:?}"), setting, expected);
    }
}
