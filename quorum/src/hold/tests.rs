//! The rules, first each by itself, then all schedules of a small world.

use std::collections::HashSet;
use std::time::Duration;

use super::{Action, Hold, PendingRelease, Plan, ReleaseStep};
use crate::clock::{BootInstant, safe_deadline};
use crate::error::{Error, LostReason};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::after_boot(Duration::from_millis(ms))
}

fn cut() -> Error {
    Error::from(redis::RedisError::from(std::io::Error::from(
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
        renew_after: Some(ms(1000)),
        over_at: None,
        keep_until: None,
    })
}

fn hold(plan: Plan) -> Hold {
    Hold::granted(plan, at(0), ms(0), plan.lease)
}

/// The deadline of a lease of 3 s.
const LASTS_MS: u64 = 2995;

#[test]
fn lease_is_renewed_after_a_third() {
    let mut hold = renewed();
    assert_eq!(hold.wakes_at(), Some(at(1000)));
    assert_eq!(hold.on_time(at(999)), None);
    let extend = Action::Extend {
        lease: ms(3000),
        timeout: ms(LASTS_MS - 1000) / 2,
    };
    assert_eq!(hold.on_time(at(1000)), Some(extend));
    assert_eq!(hold.on_time(at(1001)), None, "one at a time");
    assert_eq!(hold.on_renewed(at(1000), &Ok(ms(3000)), at(1010)), None);
    assert_eq!(hold.wakes_at(), Some(at(2000)));
    assert_eq!(hold.remaining(at(1010)), ms(1000 + LASTS_MS - 1010));
}

#[test]
fn renewal_counts_from_grant_not_from_request() {
    let plan = Plan {
        lease: ms(3000),
        renew_after: Some(ms(1000)),
        over_at: None,
        keep_until: None,
    };
    let hold = Hold::granted(plan, at(0), ms(10_000), ms(3000));
    assert_eq!(hold.wakes_at(), Some(at(11_000)));
}

#[test]
fn renewal_of_shortened_grant_counts_from_what_is_left() {
    let plan = Plan {
        lease: ms(3000),
        renew_after: Some(ms(1000)),
        over_at: None,
        keep_until: None,
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
fn failed_renewal_is_retried_until_deadline() {
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
fn loss_reported_by_server_is_final() {
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
        assert_eq!(hold.lost_reason(at(1003)), Some(reason), "a lost hold stays lost");
        assert!(!hold.give_up(at(1003)).is_needed());
    }
}

#[test]
fn renewal_confirmed_after_deadline_is_loss() {
    let mut hold = renewed();
    hold.on_time(at(1000));
    let answer = hold.on_renewed(at(1000), &Ok(ms(3000)), at(LASTS_MS));
    assert_eq!(answer, Some(Action::NotifyLost(LostReason::LeaseExpired)));
}

#[test]
fn extend_never_shortens_lease() {
    let mut hold = renewed();
    hold.on_extended(at(10), &Ok(ms(1)), at(11));
    assert_eq!(hold.remaining(at(11)), ms(LASTS_MS - 11));
}

#[test]
fn hold_without_renewal_lasts_to_deadline() {
    let mut hold = hold(Plan {
        lease: ms(3000),
        renew_after: None,
        over_at: None,
        keep_until: None,
    });
    assert_eq!(hold.wakes_at(), Some(at(LASTS_MS)));
    assert_eq!(hold.on_time(at(LASTS_MS - 1)), None);
    assert_eq!(
        hold.on_time(at(LASTS_MS)),
        Some(Action::NotifyLost(LostReason::LeaseExpired))
    );
}

#[test]
fn late_grant_is_not_held() {
    let plan = Plan {
        lease: ms(1000),
        renew_after: Some(ms(1000)),
        over_at: None,
        keep_until: None,
    };
    let hold = Hold::granted(plan, at(0), ms(0), ms(1000));
    assert!(!hold.is_held(at(1500)));
    assert_eq!(hold.remaining(at(1500)), ms(0));
}

#[test]
fn renewal_does_not_exceed_max_hold() {
    let mut hold = hold(Plan {
        lease: ms(3000),
        renew_after: Some(ms(1000)),
        over_at: Some(at(5000)),
        keep_until: None,
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
fn given_up_hold_is_not_renewed() {
    let mut hold = renewed();
    assert!(hold.give_up(at(1)).is_needed());
    assert_eq!(hold.wakes_at(), None);
    assert_eq!(hold.on_time(at(1000)), None);
    assert_eq!(hold.on_time(at(10_000)), None, "what is given up is not lost");
    assert_eq!(hold.lost_reason(at(10_000)), None);
    assert!(!hold.is_held(at(1)));
}

#[test]
fn expired_hold_is_still_released() {
    let mut hold = renewed();
    hold.on_time(at(LASTS_MS));
    assert!(hold.give_up(at(LASTS_MS)).is_needed());
}

impl PendingRelease {
    /// The reply to an attempt that was sent.
    fn on_sent_reply(&mut self, reply: Result<u64, Error>, now: BootInstant) -> ReleaseStep {
        self.on_connected(false);
        self.on_reply(reply, now)
    }
}

#[test]
fn release_of_expired_hold_reports_loss() {
    // As after a suspend, before the background has looked.
    let release = || renewed().give_up(at(LASTS_MS));
    assert!(release().is_needed());
    let unsent = release().on_reply(Err(cut()), at(LASTS_MS));
    let silent = release().on_sent_reply(Err(cut()), at(LASTS_MS));
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
fn release_reports_outcome_or_unconfirmed() {
    let release = || renewed().give_up(at(1));
    let (before, after) = (at(2000), at(LASTS_MS));
    let outcome = |step| match step {
        ReleaseStep::Done(outcome) => outcome,
        ReleaseStep::Retry(error) => panic!("again, after {error}"),
    };
    assert!(matches!(outcome(release().on_sent_reply(Ok(1), before)), Ok(1)));
    // The server checks the fence: it was held until then, whatever the local clock says.
    assert!(matches!(outcome(release().on_sent_reply(Ok(0), after)), Ok(0)));
    let lost = outcome(release().on_sent_reply(Err(Error::Stale), before));
    assert!(matches!(lost, Err(Error::Lost(LostReason::Stale))), "{lost:?}");

    // An attempt before may have been carried out: that, or a loss before it.
    let mut repeated = release();
    assert!(matches!(
        repeated.on_sent_reply(Err(cut()), before),
        ReleaseStep::Retry(_)
    ));
    let unknown = outcome(repeated.on_sent_reply(Err(Error::Stale), before));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");
    assert!(matches!(outcome(repeated.on_sent_reply(Ok(0), before)), Ok(0)));
    let unknown = outcome(repeated.on_sent_reply(Err(cut()), after));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");

    // The connection may have made an attempt before, by itself.
    let mut resent = release();
    resent.on_connected(true);
    let unknown = outcome(resent.on_reply(Err(Error::NotHeld), before));
    assert!(matches!(unknown, Err(Error::Unconfirmed(_))), "{unknown:?}");

    // What could not be sent was not carried out.
    let mut unsent = release();
    assert!(matches!(
        unsent.on_reply(Err(cut()), before),
        ReleaseStep::Retry(_)
    ));
    let lost = outcome(unsent.on_sent_reply(Err(Error::Stale), before));
    assert!(matches!(lost, Err(Error::Lost(LostReason::Stale))), "{lost:?}");
    let failure = outcome(release().on_reply(Err(cut()), after));
    assert!(matches!(failure, Err(Error::Redis(_))), "{failure:?}");

    // A refusal of the server is no attempt that may have been carried out.
    let mut refused = release();
    assert!(matches!(
        refused.on_sent_reply(Err(no_replicas()), before),
        ReleaseStep::Retry(_)
    ));
    let refusal = outcome(refused.on_sent_reply(Err(no_replicas()), after));
    assert!(matches!(refusal, Err(Error::Redis(_))), "{refusal:?}");
}

#[test]
fn lost_hold_stays_lost_after_release() {
    let mut hold = renewed();
    hold.on_time(at(LASTS_MS));
    for answer in [Ok(0), Err(cut()), Err(Error::Stale)] {
        let step = hold.give_up(at(LASTS_MS)).on_sent_reply(answer, at(LASTS_MS));
        let ReleaseStep::Done(Err(Error::Lost(reason))) = step else {
            panic!("{step:?}");
        };
        assert_eq!(reason, LostReason::LeaseExpired);
    }
}

/// A server with one lease, a client, and the time, which advances in steps.
#[derive(Clone, Debug)]
struct World {
    hold: Hold,
    now: BootInstant,
    /// When the lease ends on the server; `None`: an administrator broke the lock.
    lease_ends: Option<BootInstant>,
    /// EXTENDs on their way to the server, and what has become of them on their way back.
    asked: Option<(BootInstant, Duration)>,
    answered: Option<(BootInstant, Result<Duration, Error>)>,
    released: bool,
    losses_notified: u32,
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
            losses_notified: 0,
        }
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            Some(Action::Extend { lease, .. }) => {
                assert!(!self.released, "a renewal after the release was begun");
                assert_eq!(self.losses_notified, 0, "a renewal of a lost lock");
                assert!(
                    self.asked.is_none() && self.answered.is_none(),
                    "two renewals at once"
                );
                self.asked = Some((self.now, lease));
            }
            Some(Action::NotifyLost(_)) => self.losses_notified += 1,
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
        assert!(self.losses_notified <= 1, "notified twice: {self:?}");
        assert!(
            self.losses_notified == 0 || !self.hold.is_held(self.now),
            "held and lost: {self:?}"
        );
        assert!(
            !self.released || !self.hold.is_held(self.now),
            "held and released: {self:?}"
        );
    }
}

#[test]
fn no_schedule_holds_expired_lease_or_renews_after_release() {
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
