//! Fences of a lock whose cluster slot moves: every way through a small world.

use dlock_model::search::{Outcome, search};
use dlock_model::slots::{FenceFell, SlotSetting, Slots};

const SETTING: SlotSetting = SlotSetting {
    ticks: 2,
    grants: 4,
    moves: 2,
    cancels: true,
    promotions: 2,
    behind_ticks: 1,
    losses: 0,
    without_announcements: false,
    without_claims: false,
};

/// Both nodes have the same time, and nothing happens to them.
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

fn falls(setting: SlotSetting, way: &[&str]) {
    let (_, found) = explore(setting).found.expect("a way to break it");
    assert_eq!(found, way);
}

const MOVED: [&str; 3] = ["a grant", "the slot begins to move", "a grant"];
const CANCELLED: [&str; 4] = [
    "the slot begins to move",
    "a grant",
    "the move is cancelled",
    "a grant",
];

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
    falls(setting, &[&["the replica of 0 takes over"], &MOVED[..]].concat());
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

/// The risk that is left: the other node has not received the claim.
#[test]
fn announcement_that_is_lost_before_cancelled_migration_lets_fences_fall() {
    let setting = SlotSetting { losses: 1, ..CALM };
    let (_, found) = explore(setting).found.expect("a way to break it");
    assert!(found.contains(&"the next announcement is lost".to_owned()));
    assert!(
        !found.contains(&"-- a tick --".to_owned()),
        "the next one repairs it: {found:?}"
    );
}

/// The risk that is left: the other node has not received how far the counter leapt.
#[test]
fn announcement_that_is_lost_after_promotion_lets_fences_fall() {
    let setting = SlotSetting {
        losses: 1,
        promotions: 1,
        cancels: false,
        ..CALM
    };
    let way = [
        "the replica of 1 takes over",
        "the next announcement is lost",
        "a grant",
        "the slot begins to move",
        "a grant",
    ];
    falls(setting, &way);
}
