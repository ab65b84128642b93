//! A contended lock: throughput, wait times, commands per acquisition, and fairness.

mod window;

pub use window::{Outcome, Window, Worker, WorkerLogs, run_workers};

use std::time::Duration;

use crate::error::Result;
use crate::implementations::{self, ClientKind, Servers, rslock};
use crate::results::DLOCK;
use crate::results::plot::{Plot, Series, Shape};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

const LEASE_MS: u64 = 30_000;

/// Number of clients, and the length of their critical section in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Case(usize, u64);

const FULL: [Case; 11] = [
    Case(2, 0),
    Case(16, 0),
    Case(256, 0),
    Case(2, 1),
    Case(4, 1),
    Case(16, 1),
    Case(64, 1),
    Case(256, 1),
    Case(2, 10),
    Case(16, 10),
    Case(64, 10),
];
const QUICK: [Case; 5] = [Case(16, 0), Case(2, 1), Case(16, 1), Case(64, 1), Case(16, 10)];

/// Plots show the cases with this critical section.
const PLOTTED_CRITICAL_SECTION_MS: u64 = 1;

const MIN_WINDOW: Duration = Duration::from_millis(400);
const MAX_WINDOW: Duration = Duration::from_millis(2_100);
/// A window is long enough for this many acquisitions per client on an idle machine.
const ACQUISITIONS_PER_CLIENT: u32 = 8;
/// The case with targets for throughput and waits.
const TARGET_CASE: Case = Case(64, 1);
/// Per second. With a lock that costs nothing there would be 1 000.
const MIN_ACQUISITIONS: f64 = 800.0;
/// With fewer, the fairness index would only show who came last before the window ended.
const MIN_ACQUISITIONS_FOR_FAIRNESS: f64 = 6.0;

impl Case {
    fn name(self) -> String {
        format!("{} clients, {} ms critical section", self.0, self.1)
    }

    /// How long a client waits for all others, one after the other, if the lock costs nothing.
    fn fifo_wait_ms(self) -> f64 {
        (self.0 as f64 - 1.0) * self.1 as f64
    }

    /// Long enough for all acquisitions of all clients, within limits.
    fn window(self) -> Window {
        let critical_section = Duration::from_millis(self.1);
        let all = critical_section * ACQUISITIONS_PER_CLIENT * u32::try_from(self.0).unwrap_or(u32::MAX);
        Window::of(critical_section, all.clamp(MIN_WINDOW, MAX_WINDOW))
    }
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let mut servers = Servers::start(true)?;
    let kinds = servers.client_kinds()?;
    let cases = if bench.quick { &QUICK[..] } else { &FULL };
    let count = bench.rounds(3, 1);
    let mut results = Vec::new();
    for &case in cases {
        bench.progress.step("contention", &case.name());
        bench.wait_budget.wait_for_quiet()?;
        let names = kinds.iter().map(|(name, _)| *name).collect();
        let mut current = None;
        let outcomes = Comparison::in_turns(names, count, |round, index| {
            if current.replace(round) != Some(round) {
                servers.server = Server::start()?;
            }
            one_round(&servers, kinds[index], case, round)
        })?;
        add(case, &outcomes, summary);
        results.push((case, outcomes));
    }
    for (file, title, metric) in [
        ("contention-wait", "Longest wait for a contended lock", WAIT_MAX),
        (
            "contention-throughput",
            "Acquisitions of a contended lock",
            ACQUISITIONS,
        ),
        ("contention-commands", "Commands per acquisition", COMMANDS),
        (
            "contention-fairness",
            "Fairness under contention (Jain's index, 1 = all clients get equal shares)",
            FAIRNESS,
        ),
    ] {
        summary.plot(plot(&results, file, title, metric));
    }
    summary.note(format!(
        "medians of {count} alternating rounds of {MIN_WINDOW:?} to {MAX_WINDOW:?}; in parentheses: dlock / that \
         implementation; waits that are unfinished at the end count as they are; fairness is Jain's index, 1 = equal \
         shares"
    ));
    summary.note(
        "a client that polls often re-acquires the lock before the others retry: a short p50 and many acquisitions, but \
         long waits for the others",
    );
    for note in implementations::skipped(&mut servers.server.connect()?, servers.has_etcd())? {
        summary.note(note);
    }
    summary.note("SET NX PX + DEL and SET NX PX + Lua release are not measured: they have no retry policy, or sleep for 2 s");
    if servers.has_etcd() {
        summary.note(
            "etcd does more: every step is on disk before the reply; requests go through its JSON gateway",
        );
    }
    Ok(())
}

fn one_round(servers: &Servers, (name, open): ClientKind, case: Case, round: usize) -> Result<Outcome> {
    // A fresh key, in case another implementation left state behind.
    let key = format!("lock:{name}:{}:{}:{round}", case.0, case.1);
    let clients = (0..case.0).map(|number| servers.open(open, &key, number, LEASE_MS));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let counted_by_server = clients.iter().any(|client| client.commands().is_none());
    let before = rslock_commands(&servers.server)?;
    let workers = clients.into_iter().map(Worker::new).collect();
    let logs = run_workers(workers, 1, case.window())?;
    let by_server = rslock_commands(&servers.server)? - before;
    Ok(logs.outcome(if counted_by_server {
        by_server
    } else {
        logs.commands
    }))
}

/// Its clients cannot count them.
fn rslock_commands(server: &Server) -> Result<f64> {
    rslock::COMMANDS.iter().map(|command| server.calls(command)).sum()
}

/// Name, unit and value of a figure of an outcome.
pub type Metric = (&'static str, &'static str, fn(&Outcome) -> f64);

pub const ACQUISITIONS: Metric = ("acquisitions", "/s", |outcome| outcome.acquisitions);
pub const WAIT_P50: Metric = ("wait p50", "ms", |outcome| outcome.wait_p50);
pub const WAIT_P99: Metric = ("wait p99", "ms", |outcome| outcome.wait_p99);
pub const WAIT_MAX: Metric = ("wait max", "ms", |outcome| outcome.wait_max);
pub const COMMANDS: Metric = ("commands", "per acquisition", |outcome| outcome.commands);
pub const FAIRNESS: Metric = ("fairness (Jain)", "", |outcome| outcome.fairness);

fn add(case: Case, outcomes: &Comparison<Outcome>, summary: &mut Summary) {
    let mut add = |(name, unit, of): Metric, with_target: &dyn Fn(Figure) -> Figure| {
        for figure in outcomes.figures(name, of) {
            let figure = figure.unit(unit).case(case.name());
            summary.add(if figure.implementation == DLOCK {
                with_target(figure)
            } else {
                figure
            });
        }
    };
    let without_target = |figure| figure;
    add(ACQUISITIONS, &|figure| match case {
        TARGET_CASE => figure.at_least(MIN_ACQUISITIONS),
        _ => figure,
    });
    add(WAIT_P50, &without_target);
    add(WAIT_P99, &without_target);
    add(WAIT_MAX, &without_target);
    add(COMMANDS, &|figure| figure.at_most(2.0));
    let per_client = outcomes.stats(0, |outcome| outcome.acquisitions_per_client);
    if per_client.min >= MIN_ACQUISITIONS_FOR_FAIRNESS {
        add(FAIRNESS, &|figure| figure.at_least(0.99));
    }
    if case == TARGET_CASE {
        let of_optimum = outcomes.stats(0, |outcome| outcome.wait_p99 / case.fifo_wait_ms());
        let figure = Figure::new("wait p99 / FIFO optimum", of_optimum).of(DLOCK);
        summary.add(figure.case(case.name()).at_most(1.2));
    }
}

fn plot(
    results: &[(Case, Comparison<Outcome>)],
    file: &'static str,
    title: &str,
    (metric, unit, of): Metric,
) -> Plot {
    let plotted = |(case, _): &&(Case, _)| case.1 == PLOTTED_CRITICAL_SECTION_MS;
    let cases: Vec<_> = results.iter().filter(plotted).collect();
    let names = cases.first().map_or(&[][..], |(_, outcomes)| &outcomes.names);
    let series = names.iter().enumerate().map(|(index, name)| {
        let points = cases
            .iter()
            .map(|(case, outcomes)| (case.0 as f64, outcomes.stats(index, of)));
        // A logarithmic axis has no zero.
        let points = points.filter(|(_, value)| value.min > 0.0 && value.max.is_finite());
        Series {
            name: (*name).into(),
            points: points.collect(),
        }
    });
    Plot {
        file,
        title: title.into(),
        about: format!(
            "one lock, {PLOTTED_CRITICAL_SECTION_MS} ms critical section; rounds of 0.4 s, 2 s for 256 clients: no wait can be longer"
        ),
        shape: Shape::Lines {
            x: "contending clients",
            y: metric,
            unit,
            series: series.collect(),
        },
    }
}
