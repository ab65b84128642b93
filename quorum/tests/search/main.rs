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
        let name = format!("guesses {guesses:?}");
        holds(
            &name,
            DrivenSetting {
                guesses,
                ..attempts()
            },
        );
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

fn restarting() -> DrivenSetting {
    DrivenSetting {
        world: Setting {
            restarts: 1,
            restarting: 1,
            ..Setting::default()
        },
        ..attempts()
    }
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn restarts_with_data_or_with_a_grace_change_nothing() {
    holds("a restart", restarting());
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn deaths_change_nothing() {
    holds(
        "a death",
        DrivenSetting {
            deaths: 1,
            ..attempts()
        },
    );
}

fn slow() -> DrivenSetting {
    DrivenSetting {
        world: Setting {
            slow_clients: true,
            ..Setting::default()
        },
        ..attempts()
    }
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn leases_that_end_during_the_acquisition_change_nothing() {
    holds("slow clients", slow());
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn waits_in_the_queues_change_nothing() {
    for guesses in [&[15, 30][..], &[24, 22]] {
        let waits = DrivenSetting {
            guesses,
            waits: true,
            ..attempts()
        };
        holds(&format!("in the queues, guesses {guesses:?}"), waits);
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
    fn client_that_does_not_ask_again_waits_forever() {
        let breach = Some(ClientBreach::NotAskedAgain);
        let setting = DrivenSetting {
            breach,
            ..restarting(3, &[23])
        };
        println!("{}", stuck("not asked again", setting).expect("stuck"));
    }

    #[test]
    fn clients_that_keep_less_than_a_majority_wait_for_each_other() {
        let breach = Some(ClientBreach::GrantsKept);
        let setting = DrivenSetting {
            breach,
            ..waiting(&[23, 23, 23])
        };
        println!("{}", stuck("grants kept", setting).expect("stuck"));
    }

    #[test]
    fn clients_that_keep_other_places_give_up_again_and_again() {
        let breach = Some(ClientBreach::PlacesKept);
        let setting = DrivenSetting {
            breach,
            ..waiting(&[23, 23, 23])
        };
        println!("{}", stuck("places kept", setting).expect("stuck"));
    }
}

mod rules_left_out {
    use super::*;

    fn client(breach: ClientBreach, guesses: &'static [u8]) -> DrivenSetting {
        DrivenSetting {
            guesses,
            breach: Some(breach),
            ..attempts()
        }
    }

    fn server(breach: Breach, setting: DrivenSetting) -> DrivenSetting {
        DrivenSetting {
            world: Setting {
                breach: Some(breach),
                ..setting.world
            },
            ..setting
        }
    }

    #[test]
    fn guess_that_is_trusted_lets_fences_fall() {
        let setting = client(ClientBreach::GuessTrusted, &[15, 15]);
        violates("guess trusted", setting, Violation::FenceFell);
    }

    #[test]
    fn raise_that_is_not_awaited_lets_fences_fall() {
        let setting = client(ClientBreach::RaiseNotAwaited, &[1, 1]);
        violates("raise not awaited", setting, Violation::FenceFell);
    }

    #[test]
    fn raise_that_is_not_sent_lets_fences_fall() {
        let setting = client(ClientBreach::NoRaise, &[1, 1]);
        violates("no raise", setting, Violation::FenceFell);
    }

    #[test]
    fn rejected_raise_that_is_repeated_has_no_end() {
        let setting = DrivenSetting {
            lost_raises: 1,
            ..client(ClientBreach::RejectedRaiseRepeated, &[1, 1])
        };
        violates("rejected raise repeated", setting, Violation::RaisesWithoutEnd);
    }

    #[test]
    fn larger_fence_counted_as_confirmation_lets_fences_fall() {
        let setting = client(ClientBreach::LargerFenceCounts, &[1, 1]);
        violates("larger fence counts", setting, Violation::FenceFell);
    }

    #[test]
    fn guard_that_outlives_its_lease_allows_two_guards() {
        let setting = client(ClientBreach::GuardOutlivesLease, &[15, 30]);
        violates("guard outlives lease", setting, Violation::TwoGuards);
    }

    #[test]
    fn raise_that_keeps_the_counter_lets_fences_fall() {
        let guesses: &[u8] = &[1, 1];
        let setting = server(
            Breach::RaiseWithoutCounter,
            DrivenSetting {
                guesses,
                ..attempts()
            },
        );
        violates("raise without counter", setting, Violation::FenceFell);
    }

    #[test]
    fn restart_without_grace_allows_two_guards() {
        let setting = server(Breach::NoGrace, restarting());
        violates("no grace", setting, Violation::TwoGuards);
    }

    #[test]
    fn clock_taken_before_grace_lets_fences_fall() {
        let guesses: &[u8] = &[24, 1];
        let setting = server(
            Breach::FencesAdvancedBeforeGrace,
            DrivenSetting {
                guesses,
                ..restarting()
            },
        );
        violates("clock before grace", setting, Violation::FenceFell);
    }

    #[test]
    fn unbounded_min_fence_lets_fences_fall() {
        let guesses: &[u8] = &[60, 1];
        let setting = server(
            Breach::UnboundedMinFence,
            DrivenSetting {
                guesses,
                ..restarting()
            },
        );
        violates("unbounded MINFENCE", setting, Violation::FenceFell);
    }
}
