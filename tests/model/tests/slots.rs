//! Fences of a lock whose cluster slot moves: every way through a small world.

use dlock_model::search::{Outcome, search};
use dlock_model::slots::{FenceFell, SlotSetting, Slots};

const CALM: SlotSetting = SlotSetting {
    ticks: 5,
    grants: 5,
    moves: 4,
    promotions: 0,
    behind_ticks: 0,
    back_at_once: false,
    without_raise: false,
};

fn explore(setting: SlotSetting) -> Outcome<FenceFell> {
    let outcome = search(Slots::new(setting));
    println!("{} states", outcome.states);
    outcome
}

fn falls(setting: SlotSetting, way: &[&str]) {
    let (_, found) = explore(setting).found.expect("a way to break it");
    assert_eq!(found, way);
}

#[test]
fn fences_rise_wherever_the_slot_goes_when_clocks_agree() {
    let outcome = explore(CALM);
    assert!(outcome.states > 500, "{} states", outcome.states);
    assert_eq!(outcome.found, None);
}

#[test]
fn without_a_raise_they_fall_on_a_node_that_raised_its_counter_earlier() {
    let setting = SlotSetting {
        without_raise: true,
        ..CALM
    };
    falls(setting, &["a grant", "the slot moves", "a grant"]);
}

/// The risk that is left: the clock of the other node is behind what was granted.
#[test]
fn they_fall_when_clocks_differ_by_more_than_the_time_since_the_last_raise() {
    let setting = SlotSetting {
        behind_ticks: 1,
        ..CALM
    };
    falls(setting, &["a grant", "the slot moves", "a grant"]);
}

/// The risk that is left: for the 33 seconds of its leap a promoted node is ahead of all clocks.
#[test]
fn they_fall_when_the_slot_moves_away_from_a_node_soon_after_its_promotion() {
    let setting = SlotSetting {
        promotions: 1,
        ..CALM
    };
    falls(
        setting,
        &[
            "the replica of 0 takes over",
            "a grant",
            "the slot moves",
            "a grant",
        ],
    );
}

/// The risk that is left: a node looks at its slots once a second.
#[test]
fn they_fall_when_the_slot_comes_back_before_its_node_has_seen_it_leave() {
    let setting = SlotSetting {
        back_at_once: true,
        ..CALM
    };
    falls(
        setting,
        &[
            "a grant",
            "the slot moves",
            "a grant",
            "the slot moves",
            "a grant",
        ],
    );
}
