//! Every schedule of small worlds of clients that wait without a connection, on the code that runs in the server. The
//! guarantees hold in all of them. With a rule left out, of clients or of the server, the search finds a shortest
//! counterexample.
//!
//! Time passes in ticks: a lease lasts three of them, a call and an inbox without a reader one each. `cargo test --release
//! -p dlock-model --test inboxes -- --ignored --nocapture` takes the larger worlds.

use dlock_model::inboxes::{Breach, Inboxes, SecondName, Setting, Violation};
use dlock_model::search::search;

#[track_caller]
fn holds(name: &str, setting: Setting) {
    let outcome = search(Inboxes::new(&setting));
    println!("{name}: {} states", outcome.states);
    if let Some((violation, trace)) = outcome.found {
        panic!("{name}: {violation:?}: {}", trace.join(" | "));
    }
    assert!(outcome.states > 1_000, "{name}: {} states", outcome.states);
}

/// Without this rule, this violation is found.
#[track_caller]
fn violates(breach: Breach, setting: Setting, expected: Violation) {
    let breach = Some(breach);
    let outcome = search(Inboxes::new(&Setting { breach, ..setting }));
    let (violation, trace) = outcome.found.expect("a violation");
    let (states, trace) = (outcome.states, trace.join(" | "));
    println!("{breach:?}: {states} states: {violation:?}: {trace}");
    assert_eq!(violation, expected, "{trace}");
}

/// One client in full, and one that blocks. A fault at any time: a connection is lost, the client is killed, or there is a
/// failover.
fn fault() -> Setting {
    Setting {
        faults: 1,
        ..Setting::default()
    }
}

/// Two clients in full.
fn two() -> Setting {
    Setting {
        clients: 2,
        ticks: 1,
        timeouts: false,
        ..Setting::default()
    }
}

/// The second client has the same name for its inbox.
fn same_name() -> Setting {
    Setting {
        second_name: SecondName::Same,
        ticks: 0,
        ..two()
    }
}

fn paused() -> Setting {
    Setting {
        pauses: 1,
        ..Setting::default()
    }
}

/// What the module does later than a transition happens at any time.
fn deferred() -> Setting {
    Setting {
        deferred: true,
        ..Setting::default()
    }
}

/// Leases end within the world.
fn longer(setting: Setting) -> Setting {
    Setting {
        ticks: setting.ticks + 1,
        ..setting
    }
}

#[test]
fn waiters_without_connections_are_served_in_order_and_never_forgotten() {
    holds("a fault", fault());
    holds("two clients", two());
}

#[test]
fn inbox_outlives_a_pause_of_clients() {
    holds("clients are paused", paused());
}

#[test]
fn deferred_replies_and_rollbacks_change_nothing() {
    holds("deferred", deferred());
}

#[test]
fn client_with_the_name_of_another_inbox_takes_another_one() {
    holds("the same name", same_name());
}

/// At most 3.6 million states: one client, two faults, or one and a pause.
#[test]
#[ignore = "minutes in a release build: make model"]
fn guarantees_hold_in_larger_worlds() {
    holds("a fault, longer", longer(fault()));
    let two_faults = Setting { faults: 2, ..fault() };
    holds("two faults", two_faults);
    holds("a fault, clients paused", Setting { pauses: 1, ..fault() });
    holds(
        "a fault, deferred",
        Setting {
            deferred: true,
            ..fault()
        },
    );
}

/// At most 2.3 million states. While time passes there is a fault, but no failover: with one they take more than 6 GB.
#[test]
#[ignore = "minutes in a release build: make model"]
fn guarantees_hold_with_two_clients_and_faults() {
    holds(
        "two clients, a fault, no time",
        Setting {
            faults: 1,
            ticks: 0,
            ..two()
        },
    );
    holds("two clients, longer", longer(two()));
    holds(
        "two clients, timeouts",
        Setting {
            timeouts: true,
            ..two()
        },
    );
    holds(
        "two clients, a lost connection or a killed client",
        Setting {
            faults: 1,
            failovers: false,
            ..two()
        },
    );
}

/// At most 4 million states. While time passes there is a fault, but no failover and no timeout: with timeouts they take
/// more than 5 GB.
#[test]
#[ignore = "minutes in a release build: make model"]
fn guarantees_hold_with_two_requests() {
    holds(
        "two requests",
        Setting {
            requests: 2,
            ..Setting::default()
        },
    );
    holds(
        "two requests, a fault, no time",
        Setting {
            requests: 2,
            ticks: 0,
            ..fault()
        },
    );
    holds(
        "two requests, a lost connection or a killed client, no timeouts",
        Setting {
            requests: 2,
            ticks: 1,
            failovers: false,
            timeouts: false,
            ..fault()
        },
    );
}

mod rules_of_clients_left_out {
    use super::*;

    #[test]
    fn unanswered_request_that_is_not_repeated_is_forgotten() {
        violates(Breach::UnansweredNotRepeated, fault(), Violation::Forgotten);
    }

    #[test]
    fn release_that_is_not_repeated_leaves_an_unknown_hold() {
        violates(Breach::ReleaseNotRepeated, fault(), Violation::Orphan);
    }

    #[test]
    fn reply_to_an_earlier_sending_that_counts_forgets_the_request() {
        violates(Breach::AnyReplyCounts, fault(), Violation::Forgotten);
    }

    #[test]
    fn requests_that_are_not_repeated_in_a_new_inbox_are_forgotten() {
        violates(Breach::NotRepeatedInNewInbox, fault(), Violation::Forgotten);
    }

    #[test]
    fn unknown_grant_that_is_kept_leaves_an_unknown_hold() {
        violates(Breach::UnknownGrantKept, fault(), Violation::Orphan);
    }

    #[test]
    fn held_grant_that_is_released_as_unknown_allows_overlap() {
        violates(Breach::HeldGrantReleased, fault(), Violation::Overlap);
    }

    #[test]
    fn request_that_is_known_from_its_reply_only_allows_overlap() {
        violates(Breach::KnownFromReplyOnly, fault(), Violation::Overlap);
    }

    #[test]
    fn repeated_request_that_ends_and_is_not_withdrawn_leaves_an_unknown_hold() {
        violates(Breach::SettledNotWithdrawn, fault(), Violation::Orphan);
    }

    #[test]
    fn call_that_begins_again_after_a_lost_reply_finds_its_inbox_busy() {
        violates(Breach::CallBeginsAgain, fault(), Violation::NoInbox);
    }

    #[test]
    fn deadline_from_the_last_sending_allows_overlap() {
        violates(
            Breach::DeadlineFromLastSending,
            longer(fault()),
            Violation::Overlap,
        );
    }

    #[test]
    fn deadline_from_the_reading_allows_overlap() {
        violates(Breach::DeadlineFromReading, longer(fault()), Violation::Overlap);
    }

    /// It is sent again with all that are open, once its client has a new inbox.
    #[test]
    fn request_that_found_no_inbox_needs_no_repetition_of_its_own() {
        let breach = Some(Breach::NotRepeatedAfterNoInbox);
        holds("not repeated after NOINBOX", Setting { breach, ..fault() });
    }

    #[test]
    fn fork_that_keeps_the_inbox_allows_overlap() {
        let setting = Setting {
            second_name: SecondName::Forked,
            ..same_name()
        };
        let outcome = search(Inboxes::new(&setting));
        let (violation, trace) = outcome.found.expect("a violation");
        println!(
            "forked: {} states: {violation:?}: {}",
            outcome.states,
            trace.join(" | ")
        );
        assert_eq!(violation, Violation::Overlap);
    }
}

mod rules_of_the_server_left_out {
    use super::*;

    #[test]
    fn answers_that_are_gone_with_the_reply_are_forgotten() {
        violates(Breach::NoCursor, fault(), Violation::Forgotten);
    }

    #[test]
    fn unknown_cursor_that_is_accepted_forgets_requests() {
        let setting = Setting {
            kills: false,
            failovers: false,
            ..longer(fault())
        };
        violates(Breach::AnyCursorAccepted, setting, Violation::Forgotten);
    }

    #[test]
    fn cursors_that_come_again_forget_requests() {
        let setting = Setting {
            kills: false,
            failovers: false,
            ..longer(fault())
        };
        violates(Breach::CursorsBeginAgain, setting, Violation::Forgotten);
    }

    #[test]
    fn inbox_of_two_readers_allows_overlap() {
        violates(Breach::ReadInboxNotBusy, same_name(), Violation::Overlap);
    }

    #[test]
    fn inbox_that_any_call_makes_forgets_requests() {
        violates(Breach::GrantsMakesInbox, fault(), Violation::Forgotten);
    }

    /// It is for requests that a cluster redirects to a node without a reader.
    #[test]
    fn inbox_that_a_request_makes_is_no_harm_on_one_server() {
        let breach = Some(Breach::QueueMakesInbox);
        holds("made by QUEUE", Setting { breach, ..fault() });
    }

    #[test]
    fn repeated_request_at_the_end_of_the_queue_is_overtaken() {
        violates(Breach::RepeatLosesPlace, fault(), Violation::Overtaken);
    }

    #[test]
    fn unread_grant_that_is_kept_wastes_the_lock() {
        violates(Breach::UnreadGrantKept, fault(), Violation::Wasted);
    }

    #[test]
    fn sent_grant_that_is_rolled_back_allows_overlap() {
        violates(Breach::SentGrantRolledBack, fault(), Violation::Overlap);
    }

    #[test]
    fn repeated_grant_that_is_rolled_back_allows_overlap() {
        violates(Breach::RepeatedGrantRolledBack, fault(), Violation::Overlap);
    }

    #[test]
    fn repeated_grant_that_leaves_the_inbox_is_forgotten() {
        violates(Breach::RepeatedGrantTakenOut, fault(), Violation::Forgotten);
    }

    #[test]
    fn inbox_that_never_ends_keeps_waiters_of_the_dead() {
        violates(Breach::NoTtl, fault(), Violation::DeadWaiter);
    }

    #[test]
    fn call_that_never_ends_keeps_waiters_of_the_dead() {
        violates(Breach::UnboundedCall, fault(), Violation::DeadWaiter);
    }

    #[test]
    fn inbox_whose_time_runs_in_pauses_ends_before_its_client_can_call() {
        violates(Breach::TtlRunsInPauses, paused(), Violation::EndedInPause);
    }
}
