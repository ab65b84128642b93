use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::shared_hold::{RenewalContext, SharedHold};
use crate::clock::BootInstant;
use crate::sync::model_checked::{Mutex, lock};

/// Timers do not count suspend: after it, overdue holds are noticed within this time.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Without any holds.
const IDLE_SLEEP: Duration = Duration::from_secs(3600);
/// After a reconnection, one hold after the other is renewed at this pace.
const RENEWAL_PACE: Duration = Duration::from_micros(50);

/// Which hold is due when.
pub(crate) struct RenewalQueue {
    entries: Mutex<Entries>,
}

struct Entries {
    due: BTreeMap<(BootInstant, u64), Arc<SharedHold>>,
    /// When the thread wakes up by itself.
    next_wakeup: BootInstant,
    is_closed: bool,
}

impl RenewalQueue {
    pub fn new(now: BootInstant) -> Self {
        let entries = Entries {
            due: BTreeMap::new(),
            next_wakeup: now,
            is_closed: false,
        };
        Self {
            entries: Mutex::new(entries),
        }
    }

    /// Schedules a hold for the time at which it is due, if it is. Whether the thread must be woken.
    pub fn schedule(&self, held: &Arc<SharedHold>) -> bool {
        let mut entries = lock(&self.entries);
        entries.remove(held);
        entries.insert(held)
    }

    pub fn remove(&self, held: &SharedHold) {
        lock(&self.entries).remove(held);
    }

    /// Removes a hold that is due.
    pub fn take_due(&self, now: BootInstant) -> Option<Arc<SharedHold>> {
        let mut entries = lock(&self.entries);
        let first = entries.due.first_entry().filter(|first| first.key().0 <= now)?;
        let held = first.remove();
        *lock(&held.due) = None;
        Some(held)
    }

    /// Whether there are holds that are maintained over this connection.
    pub fn has_holds_of(&self, context: &Arc<RenewalContext>) -> bool {
        lock(&self.entries)
            .due
            .values()
            .any(|held| Arc::ptr_eq(&held.context, context))
    }

    /// Has all holds of this connection renewed as soon as possible, at an even pace. Whether the thread must be
    /// woken.
    pub fn renew_all_of(&self, context: &Arc<RenewalContext>, now: BootInstant) -> bool {
        let mut entries = lock(&self.entries);
        let is_affected = |held: &&Arc<SharedHold>| Arc::ptr_eq(&held.context, context);
        let affected: Vec<_> = entries.due.values().filter(is_affected).cloned().collect();
        let mut wakes = false;
        for (index, held) in (0..).zip(&affected) {
            entries.remove(held);
            held.with(|hold| hold.renew_by(now + RENEWAL_PACE * index));
            wakes |= entries.insert(held);
        }
        wakes
    }

    /// How long there is nothing to do; `None` once the queue is closed.
    pub fn next_timeout(&self, now: BootInstant) -> Option<Duration> {
        let mut entries = lock(&self.entries);
        let first = entries.due.keys().next();
        let timeout = first.map_or(IDLE_SLEEP, |&(due, _)| due.since(now).min(MAX_SLEEP));
        entries.next_wakeup = now + timeout;
        (!entries.is_closed).then_some(timeout)
    }

    /// Nothing will be scheduled any more.
    pub fn close(&self) {
        lock(&self.entries).is_closed = true;
    }
}

impl Entries {
    fn insert(&mut self, held: &Arc<SharedHold>) -> bool {
        // Asked while the queue is locked: a guard that is given up later removes the hold again.
        let Some(due) = held.with(|hold| hold.wakes_at()) else {
            return false;
        };
        *lock(&held.due) = Some(due);
        self.due.insert((due, held.number), Arc::clone(held));
        let is_earlier = due < self.next_wakeup;
        if is_earlier {
            self.next_wakeup = due;
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use shuttle::thread;

    use super::*;
    use crate::command::Grant;
    use crate::connect::{Address, Link, Purpose, Timeouts};
    use crate::error::{Error, LostReason};
    use crate::events::{Hook, Reporter};
    use crate::hold::{Action, Hold, Plan};
    use crate::identity::RequestIdentity;
    use crate::owner::Owner;

    const LEASE: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> BootInstant {
        BootInstant::after_boot(Duration::from_millis(ms))
    }

    /// Never connected.
    fn context() -> Arc<RenewalContext> {
        let address: Address = "redis://127.0.0.1/".parse().unwrap();
        let timeouts = Timeouts {
            connect: LEASE,
            response: LEASE,
        };
        Arc::new(RenewalContext {
            link: Link::new(address, timeouts, Purpose::Renewal, None),
            reporter: Arc::new(Reporter::new(Hook::default())),
            is_member: false,
        })
    }

    fn held() -> Arc<SharedHold> {
        held_by(Plan {
            lease: LEASE,
            renew_after: Some(LEASE / 3),
            over_at: None,
            keep_until: None,
        })
    }

    fn held_by(plan: Plan) -> Arc<SharedHold> {
        let identity = RequestIdentity::new(b"door"[..].into(), Owner::from("alice"));
        let hold = Hold::granted(plan, at(0), Duration::ZERO, plan.lease);
        let grant = Grant {
            fence: 1,
            holds: 1,
            lease: plan.lease,
            waited: Duration::ZERO,
        };
        SharedHold::new(&context(), identity, grant, false, hold)
    }

    /// A guard that is given up, the thread that renews and detects losses, and a task that waits for a loss, in all
    /// interleavings.
    fn race(wakeups_ms: &'static [u64], answer: fn() -> Result<Duration, Error>) {
        let queue = Arc::new(RenewalQueue::new(at(0)));
        let held = held();
        let is_given_up = Arc::new(AtomicBool::new(false));
        queue.schedule(&held);
        let renewals = thread::spawn({
            let (queue, is_given_up) = (Arc::clone(&queue), Arc::clone(&is_given_up));
            move || maintain(&queue, wakeups_ms, &is_given_up, answer)
        });
        let observer = thread::spawn({
            let held = Arc::clone(&held);
            move || held.token.clone()
        });
        let guard = thread::spawn({
            let (queue, held) = (Arc::clone(&queue), Arc::clone(&held));
            move || {
                held.give_up(at(1));
                is_given_up.store(true, Ordering::SeqCst);
                queue.remove(&held);
            }
        });
        let notified = renewals.join().unwrap();
        let token = observer.join().unwrap();
        guard.join().unwrap();
        assert!(
            queue.take_due(at(1_000_000)).is_none(),
            "a hold that was given up is scheduled"
        );
        assert!(notified <= 1, "notified {notified} times");
        assert!(token.is_cancelled(), "lost or given up");
        let is_lost = held.with(|hold| hold.lost_reason(at(0)).is_some());
        assert_eq!(is_lost, notified == 1);
        assert!(!held.with(|hold| hold.is_held(at(2))));
    }

    /// What the renewal thread does: how often it notified of a loss.
    fn maintain(
        queue: &RenewalQueue,
        wakeups_ms: &[u64],
        is_given_up: &AtomicBool,
        answer: fn() -> Result<Duration, Error>,
    ) -> u32 {
        let mut notified = 0;
        let mut notify = |held: &SharedHold, action| {
            if let Some(Action::NotifyLost(_)) = action {
                held.token.cancel();
                notified += 1;
            }
        };
        for now in wakeups_ms.iter().copied().map(at) {
            while let Some(held) = queue.take_due(now) {
                let was_given_up = is_given_up.load(Ordering::SeqCst);
                let action = held.with(|hold| {
                    let action = hold.on_time(now);
                    let given_up = was_given_up && action.is_some();
                    assert!(!given_up, "{action:?} for a hold that was given up");
                    action
                });
                if let Some(Action::Extend { .. }) = action {
                    queue.schedule(&held);
                    let answer = answer();
                    notify(&held, held.with(|hold| hold.on_renewed(now, &answer, now)));
                }
                notify(&held, action);
                queue.schedule(&held);
            }
        }
        notified
    }

    #[test]
    fn give_up_renewal_and_loss_do_not_race() {
        let answers: [fn() -> Result<Duration, Error>; 3] = [
            || Ok(LEASE),
            || Err(Error::NotOwner),
            || Err(Error::Grace(String::new())),
        ];
        // Until the lease is renewed, and until it has expired.
        for wakeups_ms in [&[1000][..], &[500, 1000, 2000, 5000]] {
            for answer in answers {
                shuttle::check_random(move || race(wakeups_ms, answer), 1_000);
                shuttle::check_pct(move || race(wakeups_ms, answer), 1_000, 3);
            }
        }
    }

    #[test]
    fn overdue_hold_is_noticed_within_a_second_after_suspend() {
        // Timers stop meanwhile: none may be longer.
        shuttle::check_dfs(
            || {
                let queue = RenewalQueue::new(at(0));
                let plan = Plan {
                    lease: Duration::from_secs(3600),
                    renew_after: None,
                    over_at: None,
                    keep_until: None,
                };
                let long = held_by(plan);
                queue.schedule(&long);
                assert_eq!(queue.next_timeout(at(0)), Some(Duration::from_secs(1)));
                let after = at(3_600_000);
                let found = queue.take_due(after).expect("overdue");
                assert!(matches!(
                    found.with(|hold| hold.on_time(after)),
                    Some(Action::NotifyLost(LostReason::LeaseExpired))
                ));
            },
            None,
        );
    }

    #[test]
    fn thread_is_woken_only_for_holds_due_before_its_next_wakeup() {
        shuttle::check_dfs(
            || {
                let queue = RenewalQueue::new(at(0));
                assert_eq!(queue.next_timeout(at(0)), Some(IDLE_SLEEP));
                let first = held();
                assert!(queue.schedule(&first), "idle");
                assert_eq!(queue.next_timeout(at(900)), Some(Duration::from_millis(100)));
                assert!(!queue.schedule(&held()), "due at the same time");
                assert_eq!(queue.next_timeout(at(2000)), Some(Duration::ZERO), "overdue");
                queue.close();
                assert_eq!(queue.next_timeout(at(2000)), None);
            },
            None,
        );
    }

    #[test]
    fn holds_are_renewed_at_an_even_pace_after_a_reconnection() {
        shuttle::check_dfs(
            || {
                let queue = RenewalQueue::new(at(0));
                let holds: Vec<_> = (0..3).map(|_| held()).collect();
                for held in &holds[1..] {
                    queue.schedule(held);
                }
                let _ = queue.next_timeout(at(0));
                let context = &holds[1].context;
                assert!(queue.has_holds_of(context) && !queue.has_holds_of(&holds[0].context));
                assert!(queue.renew_all_of(context, at(10)), "the thread must be woken");
                assert!(
                    queue
                        .take_due(at(10))
                        .is_some_and(|due| Arc::ptr_eq(&due, &holds[1]))
                );
                assert!(queue.take_due(at(999)).is_none(), "another connection");
            },
            None,
        );
    }
}
