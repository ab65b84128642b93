//! The rules, first each by itself, then all schedules of a small world.

use std::collections::HashSet;
use std::time::Duration;

use super::{Action, Hold, LostReason, Plan, ReleaseStep};
use crate::clock::{BootInstant, safe_deadline};
use crate::error::Error;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::after_boot(Duration::from_millis(ms))
}

fn cut() -> Error {
    Error::Redis(redis::RedisError::from(std::io::Error::from(
        std::io::ErrorKind::BrokenPipe,
    )))
}

fn no_replicas() -> Error {
    redis::make_extension_error("NOREPLICAS".into(), None).into()
}

/// A hold of 3 s that was granted at 0 and renews itself.
fn renewed() -> Hold {
    hold(Plan {
        lease: ms(3000),
        renews: true,
        over_at: None,
    })
}

fn hold(plan: Plan) -> Hold {
    Hold::granted(plan, at(0), ms(0), plan.lease)
}

/// The deadline of a lease of 3 s.
const LASTS_MS: u64 = 2995;

#[test]
fn a_lease_is_renewed_at_a_third_of_it() {
    let mut hold = renewed();
    assert_eq!(hold.wakes_at(), Some(at(1000)));
    assert_eq!(hold.on_time(at(999)), None);
    let extend = Action::Extend {
        lease: ms(3000),
        patience: ms(LASTS_MS - 1000) / 2,
    };
    assert_eq!(hold.on_time(at(1000)), Some(extend));
    assert_eq!(hold.on_time(at(1001)), None, "one at a time");
    assert_eq!(hold.on_renewed(at(1000), &Ok(ms(3000)), at(1010)), None);
    assert_eq!(hold.wakes_at(), Some(at(2000)));
    assert_eq!(hold.remaining(at(1010)), ms(1000 + LASTS_MS - 1010));
}

#[test]
fn the_third_is_counted_from_the_grant_not_from_the_request() {
    let plan = Plan {
        lease: ms(3000),
        renews: true,
        over_at: None,
    };
    let hold = Hold::granted(plan, at(0), ms(10_000), ms(3000));
    assert_eq!(hold.wakes_at(), Some(at(11_000)));
}

#[test]
fn of_a_grant_that_leaves_less_than_a_lease_it_is_the_third_of_what_is_left() {
    let plan = Plan {
        lease: ms(3000),
        renews: true,
        over_at: None,
    };
    // The answer was lost, and is given again when most of the lease is over.
    let mut hold = Hold::granted(plan, at(0), ms(0), ms(900));
    assert_eq!(hold.wakes_at(), Some(at(300)));
    assert!(matches!(hold.on_time(at(300)), Some(Action::Extend { lease, .. }) if lease == ms(3000)));
    hold.on_renewed(at(300), &Ok(ms(3000)), at(310));
    assert_eq!(hold.wakes_at(), Some(at(1300)));
    // The owner had the lock already, by a longer lease.
    let hold = Hold::granted(plan, at(0), ms(0), ms(9000));
    assert_eq!(hold.wakes_at(), Some(at(1000)));
}

#[test]
fn a_failed_renewal_is_repeated_until_the_deadline_and_no_longer() {
    for error in [
        cut(),
        no_replicas(),
        Error::Grace(String::new()),
        Error::ModuleMissing,
    ] {
        let mut hold = renewed();
        let mut now = at(1000);
        let mut sent = 0;
        while let Some(Action::Extend { .. }) = hold.on_time(now) {
            sent += 1;
            assert_eq!(hold.on_renewed(now, &Err(error.clone()), now), None);
            now = hold.wakes_at().unwrap();
        }
        assert!(sent > 10, "{sent}");
        assert_eq!(hold.lost_reason(now), Some(LostReason::LeaseExpired));
        assert_eq!(
            now.since(at(0)),
            safe_deadline(at(0), ms(0), ms(3000)).since(at(0))
        );
        assert_eq!(hold.on_time(now + ms(1)), None);
        assert_eq!(hold.wakes_at(), None);
    }
}

#[test]
fn what_the_server_says_about_the_holder_is_final() {
    for (error, reason) in [
        (Error::NotHeld, LostReason::NotHeld),
        (Error::NotOwner, LostReason::NotOwner),
        (Error::Stale, LostReason::Stale),
    ] {
        let mut hold = renewed();
        hold.on_time(at(1000));
        assert_eq!(
            hold.on_renewed(at(1000), &Err(error), at(1001)),
            Some(Action::NotifyLost(reason))
        );
        assert!(!hold.is_held(at(1001)));
        assert_eq!(hold.remaining(at(1001)), ms(0));
        assert_eq!(hold.wakes_at(), None);
        assert_eq!(hold.on_extended(at(1002), &Ok(ms(3000)), at(1003)), None);
        assert_eq!(hold.lost_reason(at(1003)), Some(reason), "lost is for ever");
        assert!(!hold.give_up(at(1003)).is_needed());
    }
}

#[test]
fn a_renewal_that_is_confirmed_too_late_counts_as_lost() {
    let mut hold = renewed();
    hold.on_time(at(1000));
    let answer = hold.on_renewed(at(1000), &Ok(ms(3000)), at(LASTS_MS));
    assert_eq!(answer, Some(Action::NotifyLost(LostReason::LeaseExpired)));
}

#[test]
fn an_extension_never_shortens() {
    let mut hold = renewed();
    hold.on_extended(at(10), &Ok(ms(1)), at(11));
    assert_eq!(hold.remaining(at(11)), ms(LASTS_MS - 11));
}

#[test]
fn a_hold_that_is_not_renewed_lasts_to_its_deadline() {
    let mut hold = hold(Plan {
        lease: ms(3000),
        renews: false,
        over_at: None,
    });
    assert_eq!(hold.wakes_at(), Some(at(LASTS_MS)));
    assert_eq!(hold.on_time(at(LASTS_MS - 1)), None);
    assert_eq!(
        hold.on_time(at(LASTS_MS)),
        Some(Action::NotifyLost(LostReason::LeaseExpired))
    );
}

#[test]
fn a_grant_that_came_too_late_is_no_hold() {
    let plan = Plan {
        lease: ms(1000),
        renews: true,
        over_at: None,
    };
    let hold = Hold::granted(plan, at(0), ms(0), ms(1000));
    assert!(!hold.is_held(at(1500)));
    assert_eq!(hold.remaining(at(1500)), ms(0));
}

#[test]
fn no_renewal_goes_beyond_the_longest_time() {
    let mut hold = hold(Plan {
        lease: ms(3000),
        renews: true,
        over_at: Some(at(5000)),
    });
    assert!(matches!(hold.on_time(at(1000)), Some(Action::Extend { lease, .. }) if lease == ms(3000)));
    hold.on_renewed(at(1000), &Ok(ms(3000)), at(1001));
    let Some(Action::Extend { lease, .. }) = hold.on_time(at(2500)) else {
        panic!("no renewal");
    };
    assert!(
        (2500..2520).contains(&lease.as_millis()),
        "just to the end: {lease:?}"
    );
    hold.on_renewed(at(2500), &Ok(lease), at(2501));
    assert_eq!(hold.wakes_at(), Some(at(5000)), "nothing left to renew");
    assert_eq!(hold.remaining(at(4000)), ms(1000));
    assert_eq!(
        hold.on_time(at(5000)),
        Some(Action::NotifyLost(LostReason::MaxHoldExceeded))
    );
}

#[test]
fn nothing_is_renewed_once_the_lock_is_given_up() {
    let mut hold = renewed();
    assert!(hold.give_up(at(1)).is_needed());
    assert_eq!(hold.wakes_at(), None);
    assert_eq!(hold.on_time(at(1000)), None);
    assert_eq!(hold.on_time(at(10_000)), None, "what is given up is not lost");
    assert_eq!(hold.lost_reason(at(10_000)), None);
    assert!(!hold.is_held(at(1)));
}

#[test]
fn a_lock_that_was_lost_by_time_alone_is_still_released() {
    let mut hold = renewed();
    hold.on_time(at(LASTS_MS));
    assert!(hold.give_up(at(LASTS_MS)).is_needed());
}

#[test]
fn a_lock_whose_lease_ended_unnoticed_is_lost_whatever_its_release_says() {
    // As after a suspend, before the background has looked.
    let release = || renewed().give_up(at(LASTS_MS));
    assert!(release().is_needed());
    let unsent = release().on_unsent(cut(), at(LASTS_MS));
    let silent = release().on_answer(Err(cut()), at(LASTS_MS));
    for step in [unsent, silent] {
        assert!(
            matches!(
                step,
                ReleaseStep::Done(Err(Error::Lost(LostReason::LeaseExpired)))
            ),
            "{step:?}"
        );
    }
}

#[test]
fn a_release_tells_its_outcome_and_says_so_when_that_is_unknown() {
    let release = || renewed().give_up(at(1));
    let (before, after) = (at(2000), at(LASTS_MS));
    let outcome = |step| match step {
        ReleaseStep::Done(outcome) => outcome,
        ReleaseStep::Again(error) => panic!("again, after {error}"),
    };
    assert!(matches!(outcome(release().on_answer(Ok(1), before)), Ok(1)));
    // With a request id the server says the same of a hold that has ended by itself.
    let late = outcome(release().on_answer(Ok(0), after));
    assert!(
        matches!(late, Err(Error::Lost(LostReason::LeaseExpired))),
        "{late:?}"
    );
    let lost = outcome(release().on_answer(Err(Error::Stale), before));
    assert!(matches!(lost, Err(Error::Lost(LostReason::Stale))), "{lost:?}");

    // An attempt before may have been carried out: that, or a loss before it.
    let mut repeated = release();
    assert!(matches!(
        repeated.on_answer(Err(cut()), before),
        ReleaseStep::Again(_)
    ));
    let unknown = outcome(repeated.on_answer(Err(Error::Stale), before));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");
    let late = outcome(repeated.on_answer(Err(Error::Stale), after));
    assert!(matches!(late, Err(Error::Lost(LostReason::Stale))), "{late:?}");
    let unknown = outcome(repeated.on_answer(Err(cut()), after));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");

    // What could not be sent was not carried out.
    let mut unsent = release();
    assert!(matches!(unsent.on_unsent(cut(), before), ReleaseStep::Again(_)));
    let lost = outcome(unsent.on_answer(Err(Error::Stale), before));
    assert!(matches!(lost, Err(Error::Lost(LostReason::Stale))), "{lost:?}");
    let failure = outcome(release().on_unsent(cut(), after));
    assert!(matches!(failure, Err(Error::Redis(_))), "{failure:?}");

    // A refusal of the server is no attempt that may have been carried out.
    let mut refused = release();
    assert!(matches!(
        refused.on_answer(Err(no_replicas()), before),
        ReleaseStep::Again(_)
    ));
    let refusal = outcome(refused.on_answer(Err(no_replicas()), after));
    assert!(matches!(refusal, Err(Error::Redis(_))), "{refusal:?}");
}

#[test]
fn a_lock_that_was_lost_stays_so_whatever_its_release_says() {
    let mut hold = renewed();
    hold.on_time(at(LASTS_MS));
    for answer in [Ok(0), Err(cut()), Err(Error::Stale)] {
        let step = hold.give_up(at(LASTS_MS)).on_answer(answer, at(LASTS_MS));
        let ReleaseStep::Done(Err(Error::Lost(reason))) = step else {
            panic!("{step:?}");
        };
        assert_eq!(reason, LostReason::LeaseExpired);
    }
}

/// A server with one lease, as SPEC has it, in steps of whole leases' tenths; and the truth about it.
#[derive(Clone, Debug)]
struct World {
    hold: Hold,
    now: BootInstant,
    /// When the lease ends on the server; `None`: it has been taken away.
    lease_ends: Option<BootInstant>,
    /// EXTENDs on their way to the server, and what has become of them on their way back.
    asked: Option<(BootInstant, Duration)>,
    answered: Option<(BootInstant, Result<Duration, Error>)>,
    released: bool,
    told_lost: u32,
}

const STEP: Duration = ms(500);

impl World {
    fn new() -> Self {
        Self {
            hold: renewed(),
            now: at(0),
            lease_ends: Some(at(3000)),
            asked: None,
            answered: None,
            released: false,
            told_lost: 0,
        }
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            Some(Action::Extend { lease, .. }) => {
                assert!(!self.released, "a renewal after the release was begun");
                assert_eq!(self.told_lost, 0, "a renewal of a lost lock");
                assert!(
                    self.asked.is_none() && self.answered.is_none(),
                    "two renewal_thread at once"
                );
                self.asked = Some((self.now, lease));
            }
            Some(Action::NotifyLost(_)) => self.told_lost += 1,
            None => {}
        }
    }

    /// Everything that may happen next.
    fn successors(&self) -> Vec<Self> {
        let mut next = vec![self.after(|world| {
            world.now = world.now + STEP;
            let action = world.hold.on_time(world.now);
            world.act(action);
        })];
        if self.asked.is_some() {
            next.push(self.after(Self::serve));
            next.push(self.after(|world| {
                let (sent, _) = world.asked.take().unwrap();
                world.answered = Some((sent, Err(cut())));
            }));
        }
        if self.answered.is_some() {
            next.push(self.after(|world| {
                let (sent, answer) = world.answered.take().unwrap();
                let action = world.hold.on_renewed(sent, &answer, world.now);
                world.act(action);
            }));
        }
        if !self.released {
            next.push(self.after(|world| {
                world.hold.give_up(world.now);
                world.released = true;
            }));
        }
        if self.lease_ends.is_some() {
            next.push(self.after(|world| world.lease_ends = None));
        }
        next
    }

    /// The server answers what it was asked; the answer may also be lost on its way.
    fn serve(&mut self) {
        let (sent, lease) = self.asked.take().unwrap();
        let answer = match self.lease_ends {
            Some(ends) if self.now < ends => {
                let ends = ends.max(self.now + lease);
                self.lease_ends = Some(ends);
                Ok(ends.since(self.now))
            }
            _ => Err(Error::NotHeld),
        };
        self.answered = Some((sent, answer));
    }

    fn after(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    fn check(&self) {
        // An administrator's break is the one thing that no client can foresee.
        if let Some(ends) = self.lease_ends {
            assert!(
                !self.hold.is_held(self.now) || self.now < ends,
                "believes in a lease that has ended: {self:?}"
            );
        }
        assert!(self.told_lost <= 1, "told twice: {self:?}");
        assert!(
            self.told_lost == 0 || !self.hold.is_held(self.now),
            "held and lost: {self:?}"
        );
        assert!(
            !self.released || !self.hold.is_held(self.now),
            "held and released: {self:?}"
        );
    }
}

#[test]
fn in_all_schedules_nobody_believes_in_an_ended_lease_and_no_renewal_survives() {
    let mut seen = HashSet::new();
    let mut open = vec![World::new()];
    while let Some(world) = open.pop() {
        world.check();
        if world.now > at(9000) || !seen.insert(format!("{world:?}")) {
            continue;
        }
        open.extend(world.successors());
    }
    assert!(seen.len() > 10_000, "only {} states", seen.len());
}
