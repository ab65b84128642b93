//! Holds that a guard and the keeper share, and when the keeper has to look after which of them. All races
//! between a guard that is given up, a renewal and a loss are races here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::connect::Link;
use crate::events::Reporter;
use crate::hold::Hold;
use crate::identity::RequestIdentity;
use crate::sync::model_checked::{Mutex, lock};

/// Timers do not count suspend: after it, what is expiry_reason is noticed within this.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// With nothing to look after.
const REST: Duration = Duration::from_secs(3600);

/// What the background does for holds, it does over this connection, and tells here.
pub(crate) struct RenewalContext {
    pub link: Arc<Link>,
    pub reporter: Reporter,
}

/// A hold that a guard stands for.
pub(crate) struct SharedHold {
    pub context: Arc<RenewalContext>,
    pub identity: RequestIdentity,
    pub fence: u64,
    pub holds: u64,
    /// Tells apart holds that are due at the same time.
    number: u64,
    hold: Mutex<Hold>,
    /// When it is due, as the agenda has it. Changed only with the agenda in hand.
    due: Mutex<Option<BootInstant>>,
    /// Made when somebody asks for it.
    token: Mutex<Option<CancellationToken>>,
}

impl SharedHold {
    pub fn new(
        context: &Arc<RenewalContext>,
        identity: RequestIdentity,
        fence: u64,
        holds: u64,
        hold: Hold,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            identity,
            fence,
            holds,
            number: next_number(),
            hold: Mutex::new(hold),
            due: Mutex::new(None),
            token: Mutex::new(None),
        })
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Hold) -> T) -> T {
        look(&mut lock(&self.hold))
    }

    /// What is cancelled when the hold is lost.
    pub fn token(&self) -> CancellationToken {
        let token = lock(&self.token).get_or_insert_default().clone();
        // Lost before there was a token: whoever found that out found none to cancel.
        if self.with(|hold| hold.is_lost()) {
            token.cancel();
        }
        token
    }

    /// The hold is lost: tells everybody who has the token.
    pub fn cancel(&self) {
        if let Some(token) = &*lock(&self.token) {
            token.cancel();
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// When which hold is due.
pub(crate) struct RenewalQueue {
    entries: Mutex<Entries>,
}

struct Entries {
    due: BTreeMap<(BootInstant, u64), Arc<SharedHold>>,
    /// The keeper looks at the agenda then, if nobody wakes it.
    next_look: BootInstant,
    is_over: bool,
}

impl RenewalQueue {
    pub fn new(now: BootInstant) -> Self {
        let entries = Entries {
            due: BTreeMap::new(),
            next_look: now,
            is_over: false,
        };
        Self {
            entries: Mutex::new(entries),
        }
    }

    /// Puts a hold down for its time of now, if it has one. Whether the keeper has to be woken.
    pub fn schedule(&self, held: &Arc<SharedHold>) -> bool {
        let mut entries = lock(&self.entries);
        entries.remove(held);
        // Asked with the agenda in hand: whoever gives the hold up later takes it off again.
        let Some(due) = held.with(|hold| hold.wakes_at()) else {
            return false;
        };
        *lock(&held.due) = Some(due);
        entries.due.insert((due, held.number), Arc::clone(held));
        entries.look_by(due)
    }

    /// Takes a hold off.
    pub fn remove(&self, held: &SharedHold) {
        lock(&self.entries).remove(held);
    }

    /// Takes off a hold that is due.
    pub fn take_due(&self, now: BootInstant) -> Option<Arc<SharedHold>> {
        let mut entries = lock(&self.entries);
        let first = entries.due.first_entry().filter(|first| first.key().0 <= now)?;
        let held = first.remove();
        *lock(&held.due) = None;
        Some(held)
    }

    /// For how long there is nothing to do; `None` when it is over.
    pub fn next_timeout(&self, now: BootInstant) -> Option<Duration> {
        let mut entries = lock(&self.entries);
        let first = entries.due.keys().next();
        let nap = first.map_or(REST, |&(due, _)| due.since(now).min(MAX_SLEEP));
        entries.next_look = now + nap;
        (!entries.is_over).then_some(nap)
    }

    /// Nobody will put anything down any more.
    pub fn end(&self) {
        lock(&self.entries).is_over = true;
    }
}

impl Entries {
    /// Whether the keeper has to be woken to look then.
    fn look_by(&mut self, due: BootInstant) -> bool {
        let is_earlier = due < self.next_look;
        if is_earlier {
            self.next_look = due;
        }
        is_earlier
    }

    fn remove(&mut self, held: &SharedHold) {
        if let Some(due) = lock(&held.due).take() {
            self.due.remove(&(due, held.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use shuttle::thread;

    use super::*;
    use crate::connect::{Address, Purpose, Timeouts};
    use crate::error::Error;
    use crate::events::Hook;
    use crate::hold::{Action, LostReason, Plan};
    use crate::owner::Owner;

    const LEASE: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> BootInstant {
        BootInstant::after_boot(Duration::from_millis(ms))
    }

    /// Nothing is sent over it.
    fn context() -> Arc<RenewalContext> {
        let address: Address = "redis://127.0.0.1/".parse().unwrap();
        let timeouts = Timeouts {
            connect: LEASE,
            response: LEASE,
        };
        Arc::new(RenewalContext {
            link: Link::new(address.clone(), timeouts, Purpose::Renewal),
            reporter: Reporter::new(address, Hook::default()),
        })
    }

    fn held() -> Arc<SharedHold> {
        held_by(Plan {
            lease: LEASE,
            renews: true,
            over_at: None,
        })
    }

    fn held_by(plan: Plan) -> Arc<SharedHold> {
        let identity = RequestIdentity::new(b"door"[..].into(), Owner::from("alice"));
        let hold = Hold::granted(plan, at(0), Duration::ZERO, plan.lease);
        SharedHold::new(&context(), identity, 1, 1, hold)
    }

    /// A guard that is given up, the keeper that renews and finds losses, and a task that waits for a loss, in
    /// whatever order their steps come.
    fn race(looks_ms: &'static [u64], answer: fn() -> Result<Duration, Error>) {
        let agenda = Arc::new(RenewalQueue::new(at(0)));
        let held = held();
        let is_given_up = Arc::new(AtomicBool::new(false));
        agenda.schedule(&held);
        let keeper = thread::spawn({
            let (agenda, is_given_up) = (Arc::clone(&agenda), Arc::clone(&is_given_up));
            move || keep(&agenda, looks_ms, &is_given_up, answer)
        });
        let observer = thread::spawn({
            let held = Arc::clone(&held);
            move || held.token()
        });
        let guard = thread::spawn({
            let (agenda, held) = (Arc::clone(&agenda), Arc::clone(&held));
            move || {
                held.with(|hold| {
                    hold.give_up(at(1));
                    is_given_up.store(true, Ordering::SeqCst);
                });
                agenda.remove(&held);
            }
        });
        let told = keeper.join().unwrap();
        let token = observer.join().unwrap();
        guard.join().unwrap();
        assert!(
            agenda.take_due(at(1_000_000)).is_none(),
            "something looks after a hold that was given up"
        );
        assert!(told <= 1, "told {told} times");
        assert_eq!(token.is_cancelled(), told == 1, "the token and the reason");
        assert_eq!(held.with(|hold| hold.is_lost()), told == 1);
        assert!(!held.with(|hold| hold.is_held(at(2))));
    }

    /// What the thread in the background does; how often it told of a loss.
    fn keep(
        agenda: &RenewalQueue,
        looks_ms: &[u64],
        is_given_up: &AtomicBool,
        answer: fn() -> Result<Duration, Error>,
    ) -> u32 {
        let mut told = 0;
        let mut tell = |held: &SharedHold, action| {
            if let Some(Action::NotifyLost(_)) = action {
                held.cancel();
                told += 1;
            }
        };
        for now in looks_ms.iter().copied().map(at) {
            while let Some(held) = agenda.take_due(now) {
                let action = held.with(|hold| {
                    let action = hold.on_time(now);
                    let given_up = is_given_up.load(Ordering::SeqCst);
                    assert!(action.is_none() || !given_up, "{action:?} of what was given up");
                    action
                });
                if let Some(Action::Extend { .. }) = action {
                    agenda.schedule(&held);
                    let answer = answer();
                    tell(&held, held.with(|hold| hold.on_renewed(now, &answer, now)));
                }
                tell(&held, action);
                agenda.schedule(&held);
            }
        }
        told
    }

    #[test]
    fn giving_up_renewing_and_losing_do_not_race() {
        let answers: [fn() -> Result<Duration, Error>; 3] = [
            || Ok(LEASE),
            || Err(Error::NotOwner),
            || Err(Error::Grace(String::new())),
        ];
        // Until the lease is renewed, and until it has ended.
        for looks_ms in [&[1000][..], &[500, 1000, 2000, 5000]] {
            for answer in answers {
                shuttle::check_random(move || race(looks_ms, answer), 1_000);
                shuttle::check_pct(move || race(looks_ms, answer), 1_000, 3);
            }
        }
    }

    #[test]
    fn after_a_suspend_what_is_overdue_is_noticed_within_a_second() {
        // Timers stand still meanwhile: none may be longer.
        shuttle::check_dfs(
            || {
                let agenda = RenewalQueue::new(at(0));
                let plan = Plan {
                    lease: Duration::from_secs(3600),
                    renews: false,
                    over_at: None,
                };
                let long = held_by(plan);
                agenda.schedule(&long);
                assert_eq!(agenda.next_timeout(at(0)), Some(Duration::from_secs(1)));
                let after = at(3_600_000);
                let found = agenda.take_due(after).expect("it is expiry_reason");
                assert!(matches!(
                    found.with(|hold| hold.on_time(after)),
                    Some(Action::NotifyLost(LostReason::LeaseExpired))
                ));
            },
            None,
        );
    }

    #[test]
    fn the_keeper_is_woken_for_what_is_due_before_it_looks_and_only_then() {
        shuttle::check_dfs(
            || {
                let agenda = RenewalQueue::new(at(0));
                assert_eq!(agenda.next_timeout(at(0)), Some(REST));
                let first = held();
                assert!(agenda.schedule(&first), "the keeper rests");
                assert_eq!(agenda.next_timeout(at(900)), Some(Duration::from_millis(100)));
                assert!(!agenda.schedule(&held()), "due at the same time");
                assert_eq!(
                    agenda.next_timeout(at(2000)),
                    Some(Duration::ZERO),
                    "expiry_reason"
                );
                agenda.end();
                assert_eq!(agenda.next_timeout(at(2000)), None);
            },
            None,
        );
    }
}
