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
fn slot_migration_with_equal_clocks_keeps_fences_rising() {
    let outcome = explore(CALM);
    assert!(outcome.states > 500, "{} states", outcome.states);
    assert_eq!(outcome.found, None);
}

#[test]
fn slot_migration_without_advance_lets_fences_fall() {
    let setting = SlotSetting {
        without_raise: true,
        ..CALM
    };
    falls(setting, &["a grant", "the slot moves", "a grant"]);
}

/// The risk that is left: the clock of the other node is behind what was granted.
#[test]
fn slot_migration_with_clock_skew_lets_fences_fall() {
    let setting = SlotSetting {
        behind_ticks: 1,
        ..CALM
    };
    falls(setting, &["a grant", "the slot moves", "a grant"]);
}

/// The risk that is left: for the 33 seconds of its leap a promoted node is ahead of all clocks.
#[test]
fn slot_migration_soon_after_promotion_lets_fences_fall() {
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
fn slot_that_returns_before_refresh_lets_fences_fall() {
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
