//! A history of real clients on a real server holds; edited in one server, it breaks the rule of that server.

use std::path::Path;
use std::sync::OnceLock;

use dlock_torture::checkers::Rule;
use dlock_torture::history::{Acquire, History, Limit, Op, Reply, Request};
use dlock_torture::scenarios::{SCENARIOS, run_scenario};
use dlock_torture::verdict::{Rules, Verdict};

const SEED: u64 = 7;
const FAULTS: u32 = 12;

/// A history that holds.
fn real(scenario: &str) -> History {
    let found = SCENARIOS.iter().find(|known| known.name == scenario);
    let program = Path::new(env!("CARGO_BIN_EXE_dlock-torture"));
    let verdict = run_scenario(found.expect("it exists"), SEED, FAULTS, program).expect("the harness works");
    assert!(verdict.holds(), "{:?}", verdict.broken);
    verdict
        .histories
        .into_iter()
        .next()
        .expect("one server, one history")
}

/// The same for all tests.
fn of_clients() -> History {
    static HISTORY: OnceLock<History> = OnceLock::new();
    HISTORY.get_or_init(|| real("clients")).clone()
}

#[track_caller]
fn breaks(rule: Rule, history: History) {
    let verdict = Verdict::of(vec![history], Rules::STRICT);
    let rules: Vec<Rule> = verdict
        .broken
        .iter()
        .map(|(violation, _)| violation.rule)
        .collect();
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

/// A mutex that somebody who was never there gets between these times, with the largest fence of all.
fn intruder(beside: &Op, sent: u64, replied: u64) -> Op {
    Op {
        owner: "intruder".into(),
        request: Request::Acquire(Acquire {
            lease_ms: 100,
            limit: Limit::Of(1),
            block_ms: None,
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
fn a_second_holder() {
    let mut history = of_clients();
    let first = grants(&history).next().expect("somebody got a lock").clone();
    history
        .ops
        .push(intruder(&first, first.replied + 1, first.replied + 2));
    breaks(Rule::Overlap, history);
}

#[test]
fn a_fence_that_was_given_before() {
    let mut history = of_clients();
    let first = grants(&history).next().expect("somebody got a lock").clone();
    let Reply::Granted { fence: old, .. } = first.reply else {
        unreachable!()
    };
    let mut later = history
        .ops
        .iter_mut()
        .rev()
        .filter(|op| op.key == first.key && op.owner != first.owner);
    let fence = later.find_map(|op| match &mut op.reply {
        Reply::Granted { fence, .. } => Some(fence),
        _ => None,
    });
    *fence.expect("others got the lock too") = old;
    breaks(Rule::Fences, history);
}

#[test]
fn a_hold_that_is_denied() {
    let mut history = of_clients();
    let grant = grants(&history).next().expect("somebody got a lock").clone();
    history.ops.push(Op {
        request: Request::Extend {
            lease_ms: 100,
            fence: None,
        },
        reply: Reply::Error("NOTHELD nobody holds this lock".into()),
        sent: grant.replied + 1,
        replied: grant.replied + 2,
        ..grant
    });
    breaks(Rule::Leases, history);
}

#[test]
fn a_waiter_that_is_overtaken() {
    let mut history = of_clients();
    let waiter = grants(&history)
        .max_by_key(|op| waited_ms(op))
        .expect("somebody waited")
        .clone();
    let waited = waited_ms(&waiter) * 1_000;
    let rival = intruder(&waiter, waiter.replied - waited + 1, waiter.sent + waited - 1);
    assert!(rival.sent < rival.replied, "nobody waited long enough");
    history.ops.push(rival);
    breaks(Rule::Fifo, history);
}

#[test]
fn an_answer_that_never_came() {
    let mut history = of_clients();
    history.ops[0].reply = Reply::TimedOut;
    breaks(Rule::Replies, history);
}

#[test]
fn a_key_that_is_left() {
    let mut history = of_clients();
    history.final_states[0].keys = 1;
    breaks(Rule::FinalStates, history);
}

#[test]
fn an_acknowledged_element_that_is_not_stored() {
    let mut history = real("lost_writes");
    let acknowledged = history.writes.iter().find(|write| write.acknowledged);
    let element = acknowledged.expect("something was written").element;
    history
        .stored
        .as_mut()
        .expect("there is a store")
        .remove(&element);
    breaks(Rule::LostWrites, history);
}
