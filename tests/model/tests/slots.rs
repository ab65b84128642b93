//! Fences of a lock whose cluster slot migrates: every schedule of a small model.

use dlock_model::search::{Outcome, search};
use dlock_model::slots::{FenceFell, SlotSetting, Slots};

const SETTING: SlotSetting = SlotSetting {
    ticks: 2,
    grants: 4,
    migrations: 2,
    cancels: true,
    promotions: 2,
    behind_ticks: 1,
    losses: 0,
    without_announcements: false,
    without_claims: false,
};

/// Equal clocks and no promotions.
const CALM: SlotSetting = SlotSetting {
    promotions: 0,
    behind_ticks: 0,
    ..SETTING
};

fn explore(setting: SlotSetting) -> Outcome<FenceFell> {
    let outcome = search(Slots::new(setting));
    println!("{} states", outcome.states);
    outcome
}

fn falls(setting: SlotSetting, trace: &[&str]) {
    let (_, found) = explore(setting).found.expect("a violation");
    assert_eq!(found, trace);
}

const MOVED: [&str; 3] = ["grant", "migration starts", "grant"];
const CANCELLED: [&str; 4] = ["migration starts", "grant", "migration is cancelled", "grant"];

#[test]
fn claims_keep_fences_rising_over_moves_promotions_and_clock_skew() {
    for behind_ticks in 0..2 {
        let outcome = explore(SlotSetting {
            behind_ticks,
            ..SETTING
        });
        assert!(outcome.states > 10_000, "{} states", outcome.states);
        assert_eq!(outcome.found, None);
    }
}

#[test]
fn slot_migration_without_claims_lets_fences_fall() {
    let setting = SlotSetting {
        without_claims: true,
        ..CALM
    };
    falls(setting, &MOVED);
}

#[test]
fn cancelled_migration_without_announcements_lets_fences_fall() {
    let setting = SlotSetting {
        without_announcements: true,
        ..CALM
    };
    falls(setting, &CANCELLED);
}

#[test]
fn promotion_before_migration_without_announcements_lets_fences_fall() {
    let setting = SlotSetting {
        without_announcements: true,
        promotions: 1,
        cancels: false,
        ..CALM
    };
    falls(setting, &[&["replica of 0 is promoted"], &MOVED[..]].concat());
}

#[test]
fn clock_skew_without_announcements_lets_fences_fall() {
    let setting = SlotSetting {
        without_announcements: true,
        behind_ticks: 1,
        ..CALM
    };
    falls(setting, &MOVED);
}

/// A remaining risk: the other node has not received the claim.
#[test]
fn announcement_that_is_lost_before_cancelled_migration_lets_fences_fall() {
    let setting = SlotSetting { losses: 1, ..CALM };
    let (_, found) = explore(setting).found.expect("a violation");
    assert!(found.contains(&"next announcement is lost".to_owned()));
    let is_expected = !found.contains(&"-- tick --".to_owned());
    assert!(is_expected, "the next one repairs it: {found:?}");
}

/// A remaining risk: the other node has not received how far the counter advanced.
#[test]
fn announcement_that_is_lost_after_promotion_lets_fences_fall() {
    let setting = SlotSetting {
        losses: 1,
        promotions: 1,
        cancels: false,
        ..CALM
    };
    let trace = [
        "replica of 1 is promoted",
        "next announcement is lost",
        "grant",
        "migration starts",
        "grant",
    ];
    falls(setting, &trace);
}
