//! Traces of the specification are replayed against the code: those in `spec/traces`, and those in the folder that
//! `DLOCK_TRACES` names, which `make spec` writes.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use dlock_spec::failover::{self, Cores};
use dlock_spec::lock::{self, Core, Reply, Seen, Step};
use dlock_spec::model::Model;
use dlock_spec::quorum::{self, Event, Machines};
use dlock_spec::trace::{Difference, Trace};
use dlock_spec::{guard, inbox, server};
use redis_dlock_quorum::acquisition::Input;

/// `GRACE` of the specification.
const GRACE_TICKS: u64 = 3;

fn specification() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec")
}

fn traces(page: &str) -> Vec<Trace> {
    let mut traces = Trace::of_page(page, &specification().join("traces"));
    assert!(!traces.is_empty(), "spec/traces has none of {page}");
    if let Some(folder) = env::var_os("DLOCK_TRACES") {
        traces.extend(Trace::of_page(page, Path::new(&folder)));
    }
    traces
}

/// Every action of the page is in some trace, so the replay covers all of them.
#[track_caller]
fn assert_covers(page: &str, traces: &[Trace], actions: &[&str]) {
    let covered: BTreeSet<&str> = traces.iter().flat_map(Trace::actions).collect();
    assert_eq!(covered, actions.iter().copied().collect(), "{page}");
}

#[track_caller]
fn assert_agree(page: &str, replayed: impl Fn(&Trace) -> Result<(), Difference>) {
    for trace in traces(page) {
        if let Err(Difference(text)) = replayed(&trace) {
            panic!("{text}");
        }
    }
}

/// Code that differs from the specification on purpose is found out by some trace.
#[track_caller]
fn assert_found_out(page: &str, replayed: impl Fn(&Trace) -> Result<(), Difference>) {
    let is_found = traces(page).iter().any(|trace| replayed(trace).is_err());
    assert!(is_found, "no trace of {page} differs");
}

#[test]
fn core_does_what_the_specification_of_the_lock_does() {
    let actions = ["acquire", "release", "undo", "extend", "timer", "tick", "leave"];
    assert_covers("lock", &traces("lock"), &actions);
    assert_agree("lock", |trace| {
        let mut core = Core::new();
        lock::replay(trace, |step| core.step(step))
    });
}

#[test]
fn rules_for_histories_are_those_of_the_specification() {
    assert_agree("lock", |trace| {
        let mut model = Model::default();
        lock::replay(trace, |step| model.step(step))
    });
}

/// A lock that is not the core: `change` makes one out of it.
#[track_caller]
fn assert_other_lock_is_found_out(change: impl Fn(&mut Core, &Step) -> Seen) {
    assert_found_out("lock", |trace| {
        let mut core = Core::new();
        lock::replay(trace, |step| change(&mut core, step))
    });
}

#[test]
fn lock_that_ignores_request_ids_is_found_out() {
    assert_other_lock_is_found_out(|core, step| {
        let id = match &*step.name {
            "acquire" => String::new(),
            _ => step.id.clone(),
        };
        core.step(&Step { id, ..step.clone() })
    });
}

#[test]
fn lock_that_grants_out_of_order_is_found_out() {
    assert_other_lock_is_found_out(|core, step| {
        let seen = core.step(step);
        let Some(first) = seen.queue.first().filter(|_| seen.queue.len() > 1).cloned() else {
            return seen;
        };
        // The first waiter goes to the end.
        let again = |name: &str| Step {
            name: name.to_owned(),
            now: step.now,
            owner: first.owner.clone(),
            id: first.id.clone(),
            limit: first.limit,
            lease: first.lease,
            wait: first.until - step.now,
            call: first.call,
            fence: 0,
        };
        core.step(&again("leave"));
        let after = core.step(&again("acquire"));
        Seen {
            queue: seen.queue.clone(),
            holders: after.holders,
            ..seen
        }
    });
}

#[test]
fn lock_whose_fences_do_not_rise_is_found_out() {
    assert_other_lock_is_found_out(|core, step| {
        let mut seen = core.step(step);
        seen.holders.iter_mut().for_each(|holder| holder.fence = 1);
        if let Reply::Granted { fence, .. } = &mut seen.reply {
            *fence = 1;
        }
        seen
    });
}

#[test]
fn lock_that_is_released_by_anybody_is_found_out() {
    assert_other_lock_is_found_out(|core, step| {
        let holder = core.step(&Step::nothing(step.now)).holders.into_iter().next();
        let owner = match (&*step.name, holder) {
            ("release", Some(holder)) => holder.owner,
            _ => step.owner.clone(),
        };
        core.step(&Step {
            owner,
            ..step.clone()
        })
    });
}

#[test]
fn lock_that_shortens_leases_is_found_out() {
    assert_other_lock_is_found_out(|core, step| {
        let mut seen = core.step(step);
        if let ("extend", Reply::Lease(left)) = (&*step.name, &mut seen.reply) {
            *left = step.lease;
        }
        seen
    });
}

#[test]
fn cores_do_what_the_specification_of_failover_does() {
    let actions = [
        "acquire",
        "wait",
        "release",
        "extend",
        "timer",
        "replicate",
        "failover",
        "tick",
    ];
    assert_covers("failover", &traces("failover"), &actions);
    assert_agree("failover", |trace| {
        let mut cores = Cores::new(GRACE_TICKS);
        failover::replay(trace, |step, granted| cores.step(step, granted))
    });
}

#[test]
fn failover_without_grace_period_is_found_out() {
    assert_found_out("failover", |trace| {
        let mut cores = Cores::new(0);
        failover::replay(trace, |step, granted| cores.step(step, granted))
    });
}

#[test]
fn machine_of_the_quorum_does_what_the_specification_does() {
    let actions = [
        "begins",
        "hears",
        "patienceOver",
        "arrives",
        "releases",
        "dies",
        "leaseEnds",
        "isLate",
        "restarts",
        "graceEnds",
    ];
    assert_covers("quorum", &traces("quorum"), &actions);
    assert_agree("quorum", |trace| {
        let mut machines = Machines::default();
        quorum::replay(trace, |step| machines.step(step))
    });
}

#[test]
fn machine_that_trusts_its_guess_is_found_out() {
    assert_found_out("quorum", |trace| {
        let (mut machines, mut guess) = (Machines::default(), 0);
        quorum::replay(trace, |step| {
            let mut step = step.clone();
            match &mut step.event {
                Event::Begins(fence) => guess = *fence,
                Event::Hears(Input::Granted(_, fence)) => *fence = guess,
                _ => {}
            }
            machines.step(&step)
        })
    });
}

#[test]
fn cores_of_the_quorum_do_what_the_specification_does() {
    assert_agree("quorum", |trace| {
        let mut cores = server::Cores::new();
        server::replay(trace, |server, event| cores.step(server, event))
    });
}

#[test]
fn server_that_raises_for_anybody_is_found_out() {
    assert_found_out("quorum", |trace| {
        let mut cores = server::Cores::new();
        server::replay(trace, |server, event| {
            let seen = cores.step(server, event);
            match event {
                server::Event::Raise(_, fence) => server::Seen {
                    reply: server::Reply::Raised(*fence),
                    ..seen
                },
                _ => seen,
            }
        })
    });
}

#[test]
fn guard_of_the_core_does_what_the_specification_does() {
    assert_covers(
        "guard",
        &traces("guard"),
        &["acquire", "end", "guard", "failover"],
    );
    assert_agree("guard", |trace| {
        let mut cores = guard::Cores::new(true);
        guard::replay(trace, |step, fence| cores.step(step, fence))
    });
}

#[test]
fn guard_that_ignores_the_fence_is_found_out() {
    assert_found_out("guard", |trace| {
        let mut cores = guard::Cores::new(false);
        guard::replay(trace, |step, fence| cores.step(step, fence))
    });
}

#[test]
fn inboxes_of_the_core_do_what_the_specification_does() {
    let actions = ["acquire", "release", "grants", "giveUp", "arrives", "inboxEnds"];
    assert_covers("inbox", &traces("inbox"), &actions);
    assert_agree("inbox", |trace| {
        let mut core = inbox::Core::new();
        inbox::replay(trace, |event, cursor| core.step(event, cursor))
    });
}

#[test]
fn inbox_that_forgets_no_grant_is_found_out() {
    assert_found_out("inbox", |trace| {
        let mut core = inbox::Core::new();
        inbox::replay(trace, |event, cursor| match event {
            inbox::Event::InboxEnds => core.step(&inbox::Event::Nothing, cursor),
            event => core.step(event, cursor),
        })
    });
}
