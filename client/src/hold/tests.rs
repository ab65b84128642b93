//! The rules, each by itself. `crate::simulation` has whole clients in random schedules.

use std::time::Duration;

use super::{Action, Hold, PendingRelease, Plan, ReleaseStep};
use crate::error::{Error, Lost};
use crate::hold::BootInstant;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::after_boot(Duration::from_millis(ms))
}

fn cut() -> Error {
    redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).into()
}

fn no_replicas() -> Error {
    redis::make_extension_error("NOREPLICAS".into(), None).into()
}

/// A hold of 3 s.
const PLAN: Plan = Plan {
    lease: ms(3000),
    renew_after: ms(1000),
    max_hold: None,
    release_after: None,
};

/// A hold that was granted at 0.
fn granted(plan: Plan) -> Hold {
    Hold::granted(plan, at(0), ms(0), plan.first_lease())
}

/// The deadline of a lease of 3 s.
const LASTS_MS: u64 = 2995;

#[test]
fn lease_is_renewed_after_a_third() {
    let mut hold = granted(PLAN);
    assert_eq!(hold.wakes_at(), Some(at(1000)));
    assert_eq!(hold.on_time(at(999)), None);
    assert_eq!(hold.on_time(at(1000)), Some(Action::Extend(ms(3000))));
    assert_eq!(hold.on_time(at(1001)), None, "one at a time");
    assert_eq!(hold.on_renewed(at(1000), &Ok(ms(3000)), at(1010)), None);
    assert_eq!(hold.wakes_at(), Some(at(2000)));
    assert_eq!(hold.remaining(at(1010)), ms(1000 + LASTS_MS - 1010));
}

#[test]
fn renewal_counts_from_grant_not_from_request() {
    let hold = Hold::granted(PLAN, at(0), ms(10_000), ms(3000));
    assert_eq!(hold.wakes_at(), Some(at(11_000)));
    assert_eq!(hold.held(at(10_500)), ms(500));
}

#[test]
fn renewal_of_shortened_grant_counts_from_what_is_left() {
    // The answer was lost, and is given again when most of the lease is over.
    let mut hold = Hold::granted(PLAN, at(0), ms(0), ms(900));
    assert_eq!(hold.wakes_at(), Some(at(300)));
    assert_eq!(hold.on_time(at(300)), Some(Action::Extend(ms(3000))));
    hold.on_renewed(at(300), &Ok(ms(3000)), at(310));
    assert_eq!(hold.wakes_at(), Some(at(1300)));
    // The owner had the lock already, by a longer lease.
    let hold = Hold::granted(PLAN, at(0), ms(0), ms(9000));
    assert_eq!(hold.wakes_at(), Some(at(1000)));
}

#[test]
fn failed_renewal_is_retried_until_deadline() {
    for error in [
        cut(),
        no_replicas(),
        Error::Grace(String::new()),
        Error::ModuleMissing { server: None },
    ] {
        let mut hold = granted(PLAN);
        let mut now = at(1000);
        let mut sent = 0;
        while let Some(Action::Extend(_)) = hold.on_time(now) {
            sent += 1;
            assert_eq!(hold.on_renewed(now, &Err(error.clone()), now), None);
            now = hold.wakes_at().unwrap();
        }
        assert!(sent > 10, "{sent}");
        assert_eq!(hold.lost(now), Some(Lost::LeaseExpired));
        assert_eq!(now, at(LASTS_MS));
        assert_eq!(hold.on_time(now + ms(1)), None);
        assert_eq!(hold.wakes_at(), None);
    }
}

#[test]
fn loss_reported_by_server_is_final() {
    for lost in [Lost::NotHeld, Lost::NotOwner, Lost::Stale] {
        let mut hold = granted(PLAN);
        hold.on_time(at(1000));
        assert_eq!(
            hold.on_renewed(at(1000), &Err(Error::Lost(lost)), at(1001)),
            Some(Action::NotifyLost(lost))
        );
        assert!(!hold.is_held(at(1001)));
        assert_eq!(hold.remaining(at(1001)), ms(0));
        assert_eq!(hold.wakes_at(), None);
        assert_eq!(hold.on_extended(at(1002), &Ok(ms(3000)), at(1003)), None);
        assert_eq!(hold.lost(at(1003)), Some(lost), "a lost hold stays lost");
        assert_eq!(hold.give_up(at(1003), false).err(), Some(lost));
    }
}

#[test]
fn renewal_confirmed_after_deadline_is_loss() {
    let mut hold = granted(PLAN);
    hold.on_time(at(1000));
    let answer = hold.on_renewed(at(1000), &Ok(ms(3000)), at(LASTS_MS));
    assert_eq!(answer, Some(Action::NotifyLost(Lost::LeaseExpired)));
}

#[test]
fn extend_never_shortens_lease() {
    let mut hold = granted(PLAN);
    hold.on_extended(at(10), &Ok(ms(1)), at(11));
    assert_eq!(hold.remaining(at(11)), ms(LASTS_MS - 11));
}

#[test]
fn renewal_that_is_wanted_earlier_is_due_then() {
    let mut hold = granted(PLAN);
    hold.renew_by(at(2000));
    assert_eq!(hold.wakes_at(), Some(at(1000)));
    hold.renew_by(at(500));
    assert!(hold.is_renewal_due(at(500), at(500)) && !hold.is_renewal_due(at(499), at(499)));
    // Together with others a little earlier.
    assert!(hold.is_renewal_due(at(500), at(495)) && !hold.is_renewal_due(at(500), at(450)));
    assert_eq!(hold.on_time(at(500)), Some(Action::Extend(ms(3000))));
}

#[test]
fn hold_for_one_lease_is_not_renewed() {
    let mut hold = granted(Plan {
        max_hold: Some(ms(3000)),
        ..PLAN
    });
    assert_eq!(hold.wakes_at(), Some(at(LASTS_MS)));
    hold.renew_by(at(1));
    assert_eq!(hold.on_time(at(LASTS_MS - 1)), None);
    assert_eq!(
        hold.on_time(at(LASTS_MS)),
        Some(Action::NotifyLost(Lost::MaxHold))
    );
}

#[test]
fn late_grant_is_not_held() {
    let hold = Hold::granted(PLAN, at(0), ms(0), ms(1000));
    assert!(!hold.is_held(at(1500)));
    assert_eq!(hold.remaining(at(1500)), ms(0));
    assert_eq!(hold.lost(at(1500)), Some(Lost::LeaseExpired));
}

#[test]
fn renewal_does_not_exceed_max_hold() {
    let mut hold = granted(Plan {
        max_hold: Some(ms(5000)),
        ..PLAN
    });
    assert_eq!(hold.on_time(at(1000)), Some(Action::Extend(ms(3000))));
    hold.on_renewed(at(1000), &Ok(ms(3000)), at(1001));
    let Some(Action::Extend(lease)) = hold.on_time(at(2500)) else {
        panic!("no renewal");
    };
    assert_eq!(lease, ms(2500), "just to the end");
    assert_eq!(hold.longest(at(2500)), ms(2500));
    hold.on_renewed(at(2500), &Ok(lease), at(2501));
    let deadline = hold.wakes_at().unwrap();
    assert!(
        deadline > at(4990) && deadline < at(5000),
        "nothing left to renew"
    );
    assert_eq!(hold.on_time(deadline), Some(Action::NotifyLost(Lost::MaxHold)));
    assert_eq!(hold.longest(at(6000)), ms(0));
}

#[test]
fn max_hold_counts_from_grant_and_bounds_first_lease() {
    let plan = Plan {
        max_hold: Some(ms(2000)),
        ..PLAN
    };
    assert_eq!(plan.first_lease(), ms(2000));
    let hold = Hold::granted(plan, at(0), ms(60_000), ms(2000));
    assert!(hold.is_held(at(61_900)) && !hold.is_held(at(62_000)));
    assert_eq!(hold.longest(at(61_000)), ms(1000));
}

#[test]
fn longer_lease_of_the_server_does_not_exceed_max_hold() {
    let plan = Plan {
        max_hold: Some(ms(5000)),
        ..PLAN
    };
    // The owner had the lock already.
    let mut hold = Hold::granted(plan, at(0), ms(0), ms(60_000));
    assert_eq!(hold.remaining(at(1000)), ms(4000));
    hold.on_extended(at(1000), &Ok(ms(60_000)), at(1001));
    assert_eq!(hold.remaining(at(1001)), ms(3999));
    assert_eq!(hold.on_time(at(2500)), Some(Action::Extend(ms(2500))));
    hold.on_renewed(at(2500), &Ok(ms(57_000)), at(2501));
    assert_eq!(hold.wakes_at(), Some(at(5000)));
    assert_eq!(hold.on_time(at(5000)), Some(Action::NotifyLost(Lost::MaxHold)));
}

#[test]
fn first_lease_ends_when_lock_need_not_be_kept_any_more() {
    let plan = Plan {
        release_after: Some(ms(1500)),
        ..PLAN
    };
    assert_eq!(plan.first_lease(), ms(1500));
    let mut hold = granted(plan);
    // Most of it is over before work that takes longer is given another one, which may be longer.
    assert_eq!(hold.wakes_at(), Some(at(1000)));
    assert_eq!(hold.on_time(at(1000)), Some(Action::Extend(ms(3000))));
    hold.on_renewed(at(1000), &Ok(ms(3000)), at(1001));
    assert_eq!(hold.wakes_at(), Some(at(2000)));
    assert_eq!(hold.on_time(at(2000)), Some(Action::Extend(ms(3000))));
}

#[test]
fn lease_before_the_end_of_a_kept_lock_ends_there() {
    let mut hold = granted(Plan {
        release_after: Some(ms(3500)),
        ..PLAN
    });
    assert_eq!(hold.on_time(at(1000)), Some(Action::Extend(ms(2500))));
    // A failed renewal bounds nothing.
    hold.on_renewed(at(1000), &Err(cut()), at(1001));
    let due = hold.wakes_at().unwrap();
    assert_eq!(hold.on_time(due), Some(Action::Extend(at(3500) - due)));
    hold.on_renewed(due, &Ok(at(3500) - due), due);
    let due = hold.wakes_at().unwrap();
    assert!(due > at(2500) && due < at(3000), "{due:?}");
    assert_eq!(hold.on_time(due), Some(Action::Extend(ms(3000))));
}

#[test]
fn released_lock_is_kept_unless_dropped_lost_or_held_longer() {
    let hold = granted(Plan {
        release_after: Some(ms(2000)),
        ..PLAN
    });
    let keep_until = |now, keeps| hold.clone().give_up(at(now), keeps).ok()?.keep_until;
    assert_eq!(keep_until(10, true), Some(at(2000)));
    assert_eq!(keep_until(10, false), None, "dropped");
    assert_eq!(keep_until(2000, true), None, "held as long");
    assert_eq!(keep_until(1999, true), None, "lost");
    let mut extended = hold.clone();
    extended.on_extended(at(10), &Ok(ms(60_000)), at(11));
    assert_eq!(
        extended.clone().give_up(at(1998), true).unwrap().keep_until,
        Some(at(2000))
    );
    assert_eq!(extended.give_up(at(3000), true).unwrap().keep_until, None);
}

#[test]
fn given_up_hold_is_not_renewed() {
    let mut hold = granted(PLAN);
    hold.give_up(at(1), false).unwrap();
    assert_eq!(hold.wakes_at(), None);
    assert_eq!(hold.on_time(at(1000)), None);
    assert_eq!(hold.on_time(at(10_000)), None, "what is given up is not lost");
    assert_eq!(hold.lost(at(10_000)), None);
    assert!(!hold.is_held(at(1)));
}

fn outcome(step: ReleaseStep) -> Result<(), Error> {
    match step {
        ReleaseStep::Done(outcome) => outcome,
        ReleaseStep::Retry(error) => panic!("again, after {error}"),
    }
}

#[test]
fn release_of_expired_hold_reports_loss() {
    // As after a suspend, before the thread has looked.
    let release = granted(PLAN).give_up(at(LASTS_MS), false);
    assert_eq!(release.err(), Some(Lost::LeaseExpired));
}

#[test]
fn release_reports_outcome_or_unconfirmed() {
    let stale = || Err(Error::Lost(Lost::Stale));
    let release = || granted(PLAN).give_up(at(1), false).unwrap();
    let is_retried = |release: &mut PendingRelease, error| {
        let step = release.on_reply(Err(error), false, at(2000));
        matches!(step, ReleaseStep::Retry(_))
    };
    let (before, after) = (at(2000), at(LASTS_MS));
    assert_eq!(outcome(release().on_reply(Ok(()), false, before)), Ok(()));
    // The server checks the fence: it was held until then, whatever the local clock says.
    assert_eq!(outcome(release().on_reply(Ok(()), false, after)), Ok(()));
    assert_eq!(outcome(release().on_reply(stale(), false, before)), stale());

    // An attempt before may have been carried out: that, or a loss before it.
    let mut repeated = release();
    assert!(is_retried(&mut repeated, cut()));
    let unknown = outcome(repeated.on_reply(stale(), false, before));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");
    assert_eq!(outcome(repeated.on_reply(Ok(()), false, before)), Ok(()));
    let unknown = outcome(repeated.on_reply(Err(cut()), false, after));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");

    // The connection may have made an attempt before, by itself.
    let unknown = outcome(release().on_reply(stale(), true, before));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");

    // What was not sent was not carried out.
    assert!(matches!(release().failed(cut()), Error::Redis { .. }));

    // A refusal of the server is no attempt that may have been carried out.
    let mut refused = release();
    assert!(is_retried(&mut refused, no_replicas()));
    assert_eq!(outcome(refused.on_reply(stale(), false, before)), stale());
    let refusal = outcome(refused.on_reply(Err(no_replicas()), false, after));
    assert!(matches!(refusal, Err(Error::Redis { .. })), "{refusal:?}");
}

#[test]
fn repeated_extension_of_a_kept_lock_still_means_a_loss() {
    let plan = Plan {
        release_after: Some(ms(2000)),
        ..PLAN
    };
    let mut release = granted(plan).give_up(at(1), true).unwrap();
    let step = release.on_reply(Err(cut()), false, at(2));
    assert!(matches!(step, ReleaseStep::Retry(_)), "{step:?}");
    let not_held = || Err(Error::Lost(Lost::NotHeld));
    assert_eq!(outcome(release.on_reply(not_held(), true, at(3))), not_held());
}
