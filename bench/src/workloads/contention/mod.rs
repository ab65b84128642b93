//! A contended lock: throughput, wait times, commands per acquisition, and fairness.

mod window;

#[cfg(test)]
pub use window::WorkerLogs;
pub use window::{Outcome, Window, Worker, run_workers};

use std::time::Duration;

use crate::Result;
use crate::implementations::etcd::Etcd;
use crate::implementations::{self, ClientConfig, ClientKind, rslock};
use crate::results::plot::{Plot, Series, Shape};
use crate::results::stats::{Stats, stats_of};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;

const LEASE_MS: u64 = 30_000;

/// Number of clients, and the length of their critical section.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    clients: usize,
    critical_section_ms: u64,
}

const fn case(clients: usize, critical_section_ms: u64) -> Case {
    Case {
        clients,
        critical_section_ms,
    }
}

const FULL: [Case; 11] = [
    case(2, 0),
    case(16, 0),
    case(256, 0),
    case(2, 1),
    case(4, 1),
    case(16, 1),
    case(64, 1),
    case(256, 1),
    case(2, 10),
    case(16, 10),
    case(64, 10),
];
const QUICK: [Case; 5] = [case(16, 0), case(2, 1), case(16, 1), case(64, 1), case(16, 10)];

/// Plots show the cases with this critical section.
const PLOTTED_CRITICAL_SECTION_MS: u64 = 1;

const MIN_WINDOW: Duration = Duration::from_millis(400);
const MAX_WINDOW: Duration = Duration::from_millis(2_100);
/// A window is long enough for this many acquisitions per client on an idle machine.
const ACQUISITIONS_PER_CLIENT: u32 = 8;
/// With fewer, the fairness index would only show who came last before the window ended.
const MIN_ACQUISITIONS_FOR_FAIRNESS: f64 = 6.0;

impl Case {
    fn name(self) -> String {
        format!(
            "{} clients, {} ms critical section",
            self.clients, self.critical_section_ms
        )
    }

    /// Long enough for all clients, within limits.
    fn window(self) -> Window {
        let critical_section = Duration::from_millis(self.critical_section_ms);
        Window {
            critical_section,
            warm_up: Duration::ZERO,
            duration: self.all_turns(critical_section).clamp(MIN_WINDOW, MAX_WINDOW),
        }
    }

    /// The time that all acquisitions of all clients take.
    fn all_turns(self, critical_section: Duration) -> Duration {
        critical_section * ACQUISITIONS_PER_CLIENT * u32::try_from(self.clients).unwrap_or(u32::MAX)
    }
}

/// Outcomes of all rounds, by implementation, DLOCK first.
struct CaseResult {
    case: Case,
    implementations: Vec<(&'static str, Vec<Outcome>)>,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start()?;
    let other_servers = implementations::start_other_servers()?;
    let implementations = implementations::client_kinds(&server, etcd.is_some())?;
    let cases = if bench.quick { &QUICK[..] } else { &FULL };
    let count = bench.rounds(3, 1);
    let mut results = Vec::new();
    for &case in cases {
        bench.progress.step("contention", &case.name());
        let mut result = CaseResult {
            case,
            implementations: implementations
                .iter()
                .map(|implementation| (implementation.name, Vec::new()))
                .collect(),
        };
        for round in 0..count {
            let server = Server::start()?;
            for turn in 0..implementations.len() {
                let index = (round + turn) % implementations.len();
                let outcome = one_round(
                    &server,
                    &other_servers,
                    etcd.as_ref(),
                    implementations[index],
                    case,
                    round,
                )?;
                result.implementations[index].1.push(outcome);
            }
        }
        add(&result, summary);
        results.push(result);
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
    for note in implementations::skipped(&mut server.connect()?, etcd.is_some())? {
        summary.note(note);
    }
    summary.note("SET NX PX + DEL and SET NX PX + Lua release are not measured: they have no retry policy, or sleep for 2 s");
    if etcd.is_some() {
        summary.note(
            "etcd does more: every step is on disk before the reply; requests go through its JSON gateway",
        );
    }
    Ok(())
}

fn one_round(
    server: &Server,
    other_servers: &[Server],
    etcd: Option<&Etcd>,
    implementation: ClientKind,
    case: Case,
    round: usize,
) -> Result<Outcome> {
    // A fresh key, in case another implementation left state behind.
    let key = format!(
        "lock:{}:{}:{}:{round}",
        implementation.name, case.clients, case.critical_section_ms
    );
    let open = |number| {
        (implementation.open)(&ClientConfig {
            server,
            other_servers,
            etcd,
            key: &key,
            number,
            lease_ms: LEASE_MS,
        })
    };
    let clients = (0..case.clients).map(open).collect::<Result<Vec<_>>>()?;
    let counted_by_server = clients.iter().any(|client| client.commands().is_none());
    let before = rslock_commands(server)?;
    let workers = clients.into_iter().map(Worker::new).collect();
    let logs = run_workers(workers, 1, case.window())?;
    let commands = if counted_by_server {
        rslock_commands(server)? - before
    } else {
        logs.commands
    };
    Ok(logs.outcome(commands))
}

/// Its clients cannot count them.
fn rslock_commands(server: &Server) -> Result<f64> {
    rslock::COMMANDS.iter().map(|command| server.calls(command)).sum()
}

/// A named figure of an outcome.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    unit: &'static str,
    value: fn(&Outcome) -> f64,
}

const ACQUISITIONS: Metric = Metric {
    name: "acquisitions",
    unit: "/s",
    value: |outcome| outcome.acquisitions,
};
const WAIT_MAX: Metric = Metric {
    name: "wait max",
    unit: "ms",
    value: |outcome| outcome.wait_max,
};
const FAIRNESS: Metric = Metric {
    name: "fairness (Jain)",
    unit: "",
    value: |outcome| outcome.fairness,
};
const COMMANDS: Metric = Metric {
    name: "commands",
    unit: "per acquisition",
    value: |outcome| outcome.commands,
};

fn add(result: &CaseResult, summary: &mut Summary) {
    let metric = |name, unit, value| Metric { name, unit, value };
    let compared = [
        ACQUISITIONS,
        metric("wait p50", "ms", |outcome| outcome.wait_p50),
        metric("wait p99", "ms", |outcome| outcome.wait_p99),
        WAIT_MAX,
    ];
    let (_, dlock) = &result.implementations[0];
    let has_fairness = dlock
        .iter()
        .all(|outcome| outcome.acquisitions_per_client >= MIN_ACQUISITIONS_FOR_FAIRNESS);
    for (index, (implementation, rounds)) in result.implementations.iter().enumerate() {
        let figure = |metric: Metric| {
            let value = stats_of(rounds, metric.value);
            let figure = Figure::new(metric.name, value).unit(metric.unit);
            figure.of(*implementation).case(result.case.name())
        };
        for metric in compared {
            let pairs: Vec<_> = dlock.iter().zip(rounds).collect();
            let ratio = stats_of(&pairs, |(dlock, other)| {
                (metric.value)(dlock) / (metric.value)(other)
            });
            // An implementation may not get the lock at all in a short window.
            let is_ratio = index > 0 && ratio.median.is_finite();
            summary.add(if is_ratio {
                figure(metric).ratio(ratio)
            } else {
                figure(metric)
            });
        }
        if rounds.iter().all(|outcome| outcome.commands.is_finite()) {
            let commands = figure(COMMANDS);
            summary.add(if index == 0 {
                commands.at_most(2.0)
            } else {
                commands
            });
        }
        if has_fairness && rounds.iter().all(|outcome| outcome.fairness.is_finite()) {
            let fairness = figure(FAIRNESS);
            summary.add(if index == 0 {
                fairness.at_least(0.99)
            } else {
                fairness
            });
        }
    }
}

fn plot(results: &[CaseResult], file: &'static str, title: &str, metric: Metric) -> Plot {
    let cases = || {
        results
            .iter()
            .filter(|result| result.case.critical_section_ms == PLOTTED_CRITICAL_SECTION_MS)
    };
    let names = cases().next().map_or(&[][..], |result| &result.implementations);
    let series = names.iter().enumerate().map(|(index, (name, _))| {
        let points = cases().map(|result| {
            (
                result.case.clients as f64,
                stats_of(&result.implementations[index].1, metric.value),
            )
        });
        Series {
            name: (*name).into(),
            // A logarithmic axis has no zero.
            points: points
                .filter(|(_, value): &(f64, Stats)| value.min > 0.0 && value.max.is_finite())
                .collect(),
        }
    });
    let series: Vec<_> = series.collect();
    Plot {
        file,
        title: title.into(),
        about: format!(
            "one lock, {PLOTTED_CRITICAL_SECTION_MS} ms critical section; rounds of 0.4 s, 2 s for 256 clients: no wait can be longer"
        ),
        shape: Shape::Lines {
            x: "contending clients",
            y: metric.name,
            unit: metric.unit,
            series,
        },
    }
}
