//! A real history passes all checks. Mutated in one place, it violates the rule of that place.

use std::path::Path;

use dlock_torture::checkers::Rule;
use dlock_torture::history::{Acquire, History, Limit, Op, Reply, Request, Wait};
use dlock_torture::scenarios::{SCENARIOS, run_scenario};
use dlock_torture::verdict::{Rules, Verdict};

const SEED: u64 = 7;
const FAULTS: u32 = 12;

/// What it makes of a history, the rule that then is violated, and how.
type Mutation = (&'static str, Rule, fn(&mut History));

/// Of a history of faulty clients.
const MUTATIONS: &[Mutation] = &[
    ("a second holder", Rule::Overlap, add_second_holder),
    ("a repeated fence", Rule::Fences, repeat_fence),
    ("a hold that is denied", Rule::Leases, deny_hold),
    ("a waiter that a later request passes", Rule::Fifo, pass_waiter),
    ("a missing reply", Rule::Replies, |history| {
        history.ops[0].reply = Reply::TimedOut;
    }),
    ("a key that is left", Rule::FinalStates, |history| {
        history.final_states[0].keys = 1;
    }),
    ("a hold too many", Rule::Specification, |history| {
        let mut replies = history.ops.iter_mut().map(|op| &mut op.reply);
        let released = replies.find(|reply| **reply == Reply::Remaining(0));
        *released.expect("some lock was released") = Reply::Remaining(1);
    }),
    ("a free lock that is refused", Rule::Specification, |history| {
        let first = first_grant(history);
        history.ops.push(Op {
            owner: "refused".into(),
            sent: first.sent - 2,
            replied: first.sent - 1,
            reply: Reply::Null,
            ..first
        });
    }),
];

#[test]
fn each_mutation_violates_its_rule() {
    let history = run_without_violations("clients");
    for (what, rule, mutate) in MUTATIONS {
        let mut mutated = history.clone();
        mutate(&mut mutated);
        assert_violates(what, *rule, mutated);
    }
}

#[test]
fn acknowledged_element_missing_from_store_is_detected() {
    let mut history = run_without_violations("quorum");
    let acknowledged = history.writes.iter().find(|write| write.acknowledged);
    let element = acknowledged.expect("some element was written").element;
    let stored = history.stored.as_mut().expect("there is a store");
    stored.remove(&element);
    assert_violates("a lost element", Rule::LostWrites, history);
}

#[test]
fn late_write_that_guard_lets_pass_is_detected() {
    let mut history = run_without_violations("cluster-resharding-guarded");
    let mut writes = history.ops.iter_mut().filter(|op| op.is_refused_push());
    let refused = writes.next().expect("some late write was refused");
    refused.reply = Reply::Length(1);
    assert_violates("a late write", Rule::Specification, history);
}

/// A history without violations.
fn run_without_violations(scenario: &str) -> History {
    let found = SCENARIOS.iter().find(|known| known.name == scenario);
    let program = Path::new(env!("CARGO_BIN_EXE_dlock-torture"));
    let verdict = run_scenario(found.expect("the scenario exists"), SEED, FAULTS, program)
        .expect("the harness does not fail");
    assert!(verdict.holds(), "{:?}", verdict.violations);
    let mut histories = verdict.histories.into_iter();
    histories.next().expect("there is one history")
}

#[track_caller]
fn assert_violates(what: &str, rule: Rule, history: History) {
    let verdict = Verdict::of(vec![history], Rules::STRICT);
    let rules = verdict.violations.iter().map(|(violation, _)| violation.rule);
    let rules: Vec<Rule> = rules.collect();
    assert!(rules.contains(&rule), "{what}: {rules:?}");
}

fn grants(history: &History) -> impl Iterator<Item = &Op> {
    let ops = history.ops.iter();
    ops.filter(|op| matches!(op.reply, Reply::Granted { .. }))
}

fn first_grant(history: &History) -> Op {
    grants(history).next().expect("some lock was granted").clone()
}

fn waited_ms(op: &Op) -> u64 {
    match op.reply {
        Reply::Granted { waited_ms, .. } => waited_ms,
        _ => 0,
    }
}

/// A grant of a mutex to an owner that never existed, with the largest fence of all.
fn intruder(beside: &Op, sent: u64, replied: u64) -> Op {
    Op {
        owner: "intruder".into(),
        request: Request::Acquire(Acquire {
            lease_ms: 100,
            limit: Limit::Of(1),
            wait: Wait::No,
            reqid: None,
        }),
        reply: Reply::Granted {
            fence: 1 << 52,
            holds: 1,
            lease_ms: 100,
            waited_ms: 0,
        },
        sent,
        replied,
        ..beside.clone()
    }
}

fn add_second_holder(history: &mut History) {
    let first = first_grant(history);
    let second = intruder(&first, first.replied + 1, first.replied + 2);
    history.ops.push(second);
}

fn repeat_fence(history: &mut History) {
    let first = first_grant(history);
    let Reply::Granted { fence: old, .. } = first.reply else {
        unreachable!()
    };
    let later = history.ops.iter_mut().rev();
    let mut later = later.filter(|op| op.key == first.key && op.owner != first.owner);
    let fence = later.find_map(|op| match &mut op.reply {
        Reply::Granted { fence, .. } => Some(fence),
        _ => None,
    });
    *fence.expect("other owners got the lock too") = old;
}

fn deny_hold(history: &mut History) {
    let grant = first_grant(history);
    history.ops.push(Op {
        request: Request::Extend {
            lease_ms: 100,
            fence: None,
        },
        reply: Reply::Error("NOTHELD lock is not held".into()),
        sent: grant.replied + 1,
        replied: grant.replied + 2,
        ..grant
    });
}

fn pass_waiter(history: &mut History) {
    let waiter = grants(history).max_by_key(|op| waited_ms(op)).cloned();
    let waiter = waiter.expect("some lock was granted");
    let waited = waited_ms(&waiter) * 1_000;
    let rival = intruder(&waiter, waiter.replied - waited + 1, waiter.sent + waited - 1);
    assert!(rival.sent < rival.replied, "no request waited long enough");
    history.ops.push(rival);
}
