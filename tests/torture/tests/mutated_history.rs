//! A real history passes all checks. Mutated in one place, it violates the rule of that place.

use std::path::Path;
use std::sync::OnceLock;

use dlock_torture::checkers::{Rule, overtaken_waiters};
use dlock_torture::history::{Acquire, History, Limit, Op, Reply, Request, Wait};
use dlock_torture::scenarios::{SCENARIOS, run_scenario};
use dlock_torture::verdict::{Rules, Verdict};

const SEED: u64 = 7;
const FAULTS: u32 = 12;
const ATTEMPTS: usize = 20;

/// A history without violations.
fn run_without_violations(scenario: &str) -> History {
    let found = SCENARIOS.iter().find(|known| known.name == scenario);
    let program = Path::new(env!("CARGO_BIN_EXE_dlock-torture"));
    let verdict = run_scenario(found.expect("the scenario exists"), SEED, FAULTS, program)
        .expect("the harness does not fail");
    assert!(verdict.holds(), "{:?}", verdict.violations);
    verdict
        .histories
        .into_iter()
        .next()
        .expect("there is one history")
}

/// One history for all tests.
fn clients_history() -> History {
    static HISTORY: OnceLock<History> = OnceLock::new();
    HISTORY.get_or_init(|| run_without_violations("clients")).clone()
}

#[track_caller]
fn assert_violates(rule: Rule, history: History) {
    let verdict = Verdict::of(vec![history], Rules::STRICT);
    let rules = verdict.violations.iter().map(|(violation, _)| violation.rule);
    let rules: Vec<Rule> = rules.collect();
    assert!(rules.contains(&rule), "{rules:?}");
}

fn waited_ms(op: &Op) -> u64 {
    match op.reply {
        Reply::Granted { waited_ms, .. } => waited_ms,
        _ => 0,
    }
}

fn grants(history: &History) -> impl Iterator<Item = &Op> {
    let ops = history.ops.iter();
    ops.filter(|op| matches!(op.reply, Reply::Granted { .. }))
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

#[test]
fn second_holder_is_an_overlap() {
    let mut history = clients_history();
    let first = grants(&history).next().expect("some lock was granted").clone();
    history
        .ops
        .push(intruder(&first, first.replied + 1, first.replied + 2));
    assert_violates(Rule::Overlap, history);
}

#[test]
fn repeated_fence_is_detected() {
    let mut history = clients_history();
    let first = grants(&history).next().expect("some lock was granted").clone();
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
    assert_violates(Rule::Fences, history);
}

#[test]
fn denied_hold_is_a_broken_lease() {
    let mut history = clients_history();
    let grant = grants(&history).next().expect("some lock was granted").clone();
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
    assert_violates(Rule::Leases, history);
}

#[test]
fn waiter_passed_by_a_later_request_is_detected() {
    let mut history = clients_history();
    let waiter = grants(&history)
        .max_by_key(|op| waited_ms(op))
        .expect("some request waited")
        .clone();
    let waited = waited_ms(&waiter) * 1_000;
    let rival = intruder(&waiter, waiter.replied - waited + 1, waiter.sent + waited - 1);
    assert!(rival.sent < rival.replied, "no request waited long enough");
    history.ops.push(rival);
    assert_violates(Rule::Fifo, history);
}

#[test]
fn waiter_without_its_answer_is_overtaken() {
    let history = run_without_violations("inboxes");
    // Of some, the inbox ended soon after, or nobody else wanted the lock.
    let answers = grants(&history).filter(|op| matches!(op.request, Request::Answer(_)));
    let mut mutated = answers
        .take(ATTEMPTS)
        .map(|op| without_answer(&history, &op.owner));
    let found = mutated.find(|mutated| !overtaken_waiters(mutated).is_empty());
    assert_violates(Rule::Fifo, found.expect("some waiter kept its place for longer"));
}

/// As if a server had forgotten this owner, who asked for the lock once.
fn without_answer(history: &History, owner: &str) -> History {
    let mut history = history.clone();
    history
        .ops
        .retain(|op| op.owner != owner || matches!(op.reply, Reply::Queued(_)));
    for call in &mut history.calls {
        call.answered.retain(|answered| answered != owner);
    }
    history
}

#[test]
fn missing_reply_is_detected() {
    let mut history = clients_history();
    history.ops[0].reply = Reply::TimedOut;
    assert_violates(Rule::Replies, history);
}

#[test]
fn leftover_key_is_detected() {
    let mut history = clients_history();
    history.final_states[0].keys = 1;
    assert_violates(Rule::FinalStates, history);
}

#[test]
fn acknowledged_element_missing_from_store_is_detected() {
    let mut history = run_without_violations("lost-update");
    let acknowledged = history.writes.iter().find(|write| write.acknowledged);
    let element = acknowledged.expect("some element was written").element;
    history
        .stored
        .as_mut()
        .expect("there is a store")
        .remove(&element);
    assert_violates(Rule::LostWrites, history);
}

#[test]
fn reply_that_the_specification_does_not_give_is_detected() {
    let mut history = clients_history();
    let mut replies = history.ops.iter_mut().map(|op| &mut op.reply);
    let released = replies.find(|reply| **reply == Reply::Remaining(0));
    *released.expect("some lock was released") = Reply::Remaining(1);
    assert_violates(Rule::Specification, history);
}

#[test]
fn lock_that_is_refused_while_it_is_free_is_detected() {
    let mut history = clients_history();
    let first = grants(&history).next().expect("some lock was granted");
    let before = Op {
        owner: "refused".into(),
        sent: first.sent - 2,
        replied: first.sent - 1,
        reply: Reply::Null,
        ..first.clone()
    };
    history.ops.push(before);
    assert_violates(Rule::Specification, history);
}

#[test]
fn late_write_that_guard_lets_pass_is_detected() {
    let mut history = run_without_violations("cluster-resharding-guarded");
    let mut writes = history.ops.iter_mut().filter(|op| op.is_refused_push());
    let refused = writes.next().expect("some late write was refused");
    refused.reply = Reply::Length(1);
    assert_violates(Rule::Specification, history);
}
