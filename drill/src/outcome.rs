//! What happened in a run: before the first fault, and after each.

use crate::checkers::{Violation, broken_leases, lost_waiters, overlaps, queue_jumps, wrong_fences};
use crate::history::{History, Micros, Op, Reply, Wait};

/// The time from a fault to the next one, or from the start of the run to the first.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    pub from: Micros,
    pub to: Micros,
    pub acquisitions: usize,
    /// Two holders that both believed, by their safe deadlines, to hold a lock.
    pub overlaps: Vec<Violation>,
    pub fences: Vec<Violation>,
    /// Locks that a server denied to their holders before the lease had ended.
    pub lost_locks: Vec<Violation>,
    /// Waiters that their server forgot.
    pub lost_waiters: Vec<Violation>,
    /// Waiters that got no reply, with those that were lost: of the others, the server was silent.
    pub unanswered_waiters: usize,
    /// Waiters that others passed.
    pub queue_jumps: Vec<Violation>,
    /// The longest time without a grant of one of the watched locks, begun before this phase or in it.
    pub longest_pause: Micros,
    /// Whether all watched locks were granted in it.
    pub grants_again: bool,
}

impl Phase {
    /// What no deployment may do, of those that the rules cover.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        let kinds = [
            &self.overlaps,
            &self.fences,
            &self.lost_waiters,
            &self.queue_jumps,
        ];
        kinds.into_iter().flatten()
    }
}

/// The phases of a run from `start` to `end`, with faults at these times. `watched` are locks that are asked for all the
/// time and never kept for long.
pub fn phases(
    history: &History,
    start: Micros,
    faults: &[Micros],
    end: Micros,
    watched: &[String],
) -> Vec<Phase> {
    let starts = std::iter::once(&start).chain(faults);
    let ends = faults.iter().chain([&end]);
    let mut phases: Vec<Phase> = starts
        .zip(ends)
        .map(|(&from, &to)| Phase {
            from,
            to,
            grants_again: true,
            ..Phase::default()
        })
        .collect();
    let at = |time: Micros| faults.iter().filter(|&&fault| fault <= time).count();
    let shown = |violation: &Violation| {
        let ops = violation.ops.iter().map(|n| history.ops[*n].replied);
        at(ops.max().unwrap_or(start))
    };
    for violation in overlaps(history) {
        phases[shown(&violation)].overlaps.push(violation);
    }
    for violation in wrong_fences(history) {
        phases[shown(&violation)].fences.push(violation);
    }
    for violation in broken_leases(history) {
        phases[shown(&violation)].lost_locks.push(violation);
    }
    for violation in lost_waiters(history) {
        phases[shown(&violation)].lost_waiters.push(violation);
    }
    for violation in queue_jumps(history) {
        phases[shown(&violation)].queue_jumps.push(violation);
    }
    for op in grants(history) {
        phases[at(op.replied)].acquisitions += 1;
    }
    for op in history.ops.iter().filter(|op| is_unanswered_waiter(op)) {
        phases[at(op.replied)].unanswered_waiters += 1;
    }
    for lock in watched {
        let mut times: Vec<Micros> = grants(history)
            .filter(|op| op.key == *lock)
            .map(|op| op.replied)
            .collect();
        times.sort_unstable();
        for phase in &mut phases {
            phase.watch(&times);
        }
    }
    phases
}

fn is_unanswered_waiter(op: &Op) -> bool {
    let waits = op.acquire().is_some_and(|acquire| acquire.wait != Wait::No);
    waits && op.reply == Reply::TimedOut
}

fn grants(history: &History) -> impl Iterator<Item = &Op> {
    let ops = history.ops.iter();
    ops.filter(|op| matches!(op.reply, Reply::Granted { .. }))
}

impl Phase {
    /// Notes the pauses between these grants of a lock.
    fn watch(&mut self, grants: &[Micros]) {
        let first = grants.partition_point(|&grant| grant < self.from);
        let last = grants.partition_point(|&grant| grant < self.to);
        self.grants_again &= last > first;
        // A pause may have begun a little before the fault that prolonged it.
        let mut begun = first.checked_sub(1).map_or(self.from, |before| grants[before]);
        for &grant in grants[first..last].iter().chain([&self.to]) {
            self.longest_pause = self.longest_pause.max(grant - begun);
            begun = grant;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Acquire, Limit, Request, ServerTerm};

    fn grant(owner: &str, at_ms: u64, fence: u64) -> Op {
        Op {
            owner: owner.into(),
            key: "door".into(),
            server: ServerTerm::default(),
            request: Request::Acquire(Acquire {
                lease_ms: 100,
                limit: Limit::Of(1),
                wait: Wait::No,
                reqid: None,
            }),
            sent: at_ms * 1_000 - 500,
            replied: at_ms * 1_000,
            reply: Reply::Granted {
                fence,
                holds: 1,
                lease_ms: 100,
                waited_ms: 0,
            },
        }
    }

    fn of(ops: Vec<Op>) -> Vec<Phase> {
        let history = History {
            ops,
            ..History::default()
        };
        phases(&history, 0, &[5_000_000, 8_000_000], 10_000_000, &["door".into()])
    }

    #[test]
    fn pause_counts_for_the_faults_before_its_end() {
        let found = of(vec![
            grant("a", 2_000, 1),
            grant("b", 4_900, 2),
            grant("c", 7_000, 3),
            grant("d", 7_500, 4),
        ]);
        let pauses: Vec<_> = found.iter().map(|phase| phase.longest_pause / 1_000).collect();
        assert_eq!(pauses, [2_900, 2_100, 2_500]);
        let again: Vec<_> = found.iter().map(|phase| phase.grants_again).collect();
        assert_eq!(again, [true, true, false]);
    }

    #[test]
    fn waiter_without_reply_counts_for_the_last_fault_before_it_gives_up() {
        let mut waiter = grant("a", 5_500, 1);
        waiter.reply = Reply::TimedOut;
        let not_waiting = waiter.clone();
        if let Request::Acquire(acquire) = &mut waiter.request {
            acquire.wait = Wait::Block { timeout_ms: 100 };
        }
        let found = of(vec![waiter, not_waiting]);
        let counts: Vec<_> = found.iter().map(|phase| phase.unanswered_waiters).collect();
        assert_eq!(counts, [0, 1, 0]);
        assert!(found[1].lost_waiters.is_empty(), "nobody was answered");
    }

    #[test]
    fn violation_counts_for_the_last_fault_before_it() {
        let found = of(vec![
            grant("a", 4_990, 5),
            grant("b", 5_010, 6),
            grant("c", 9_000, 4),
        ]);
        let counts: Vec<_> = found
            .iter()
            .map(|phase| (phase.acquisitions, phase.overlaps.len(), phase.fences.len()))
            .collect();
        assert_eq!(counts, [(1, 0, 0), (1, 1, 0), (1, 0, 1)]);
        assert_eq!(found[1].violations().count(), 1);
        assert_eq!(found[0].violations().count(), 0);
    }
}
