//! A lock on a majority of five servers, uncontended and contended, while the first server is healthy, stopped or dead.
//! The lower bound is a lock on one server, the one in the middle.

mod nodes;
mod rules;

use std::fmt;
use std::time::{Duration, Instant};

use crate::Result;
use crate::results::DLOCK;
use crate::results::stats::{ms, stats_of};
use crate::results::table::{Figure, Summary};
use crate::workloads::Bench;
use crate::workloads::contention::{
    self, ACQUISITIONS, FAIRNESS, Outcome, WAIT_MAX, WAIT_P50, WAIT_P99, Window, Worker, run_workers,
};
use nodes::{Fault, Network, Nodes};
use rules::{NODE_TIMEOUT, RULES, Rule};

/// The requests of all rules.
const COMMANDS: [&str; 5] = ["dlock.acquire", RAISE, "dlock.release", "set", "eval"];
const RAISE: &str = "dlock.extend";
/// Until clients know which server is down.
const WARM_UP: Duration = NODE_TIMEOUT.saturating_mul(3);

/// Clients, spread over processes: each process has its own connections.
#[derive(Clone, Copy)]
struct Case {
    network: Network,
    fault: Fault,
    processes: usize,
    clients: usize,
    /// One for all clients, or one each.
    locks: usize,
}

struct Sample {
    outcome: Outcome,
    /// EXTENDs for each acquisition: third rounds, as no lease is renewed so soon.
    raises: f64,
}

/// By rule.
type Samples = Vec<(&'static str, Vec<Sample>)>;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let rounds = bench.rounds(3, 1);
    for network in Network::ALL {
        for size in sizes(bench.quick) {
            let mut healthy = None;
            for fault in Fault::ALL {
                let case = Case {
                    network,
                    fault,
                    ..*size
                };
                bench.progress.step("quorum", &case.to_string());
                let mut samples: Samples = RULES.iter().map(|rule| (rule.name, Vec::new())).collect();
                for _ in 0..rounds {
                    for (rule, (_, samples)) in RULES.iter().zip(&mut samples) {
                        samples.push(one_round(*rule, case)?);
                    }
                }
                add(case, &samples, summary);
                let ours = median(&samples[0].1, |outcome| outcome.acquisitions);
                compare(case, &samples, *healthy.get_or_insert(ours), summary);
            }
        }
    }
    summary.note(
        "one server: DLOCK on the server in the middle, which stays healthy. A process is a runtime with connections of \
         its own. Servers, clients and other programs share the cores: five requests are five times the work",
    );
    Ok(())
}

/// One client measures the latency, several contend and work for a millisecond.
fn sizes(is_quick: bool) -> &'static [Case] {
    const fn size(processes: usize, clients: usize, locks: usize) -> Case {
        Case {
            network: Network::Local,
            fault: Fault::None,
            processes,
            clients,
            locks,
        }
    }
    const ALL: [Case; 6] = [
        size(1, 1, 1),
        size(1, 8, 1),
        size(4, 8, 1),
        size(1, 64, 1),
        size(4, 64, 1),
        size(4, 64, 64),
    ];
    if is_quick { &ALL[..2] } else { &ALL }
}

impl Case {
    fn window(self) -> Window {
        Window {
            critical_section: Duration::from_millis(u64::from(self.clients > 1)),
            warm_up: WARM_UP,
            duration: Duration::from_millis(if self.clients > 8 { 3_000 } else { 1_000 }),
        }
    }

    fn is_contended(self) -> bool {
        self.clients > self.locks
    }

    fn keys(self) -> Vec<String> {
        (0..self.clients)
            .map(|client| format!("lock:{}", client % self.locks))
            .collect()
    }
}

fn one_round(rule: Rule, case: Case) -> Result<Sample> {
    let mut nodes = Nodes::start(case.network, case.fault)?;
    let mut workers = Vec::new();
    for keys in case.keys().chunks(case.clients / case.processes) {
        let mut clients = (rule.open)(&nodes, keys)?;
        // Connects.
        if let Some(client) = clients.first_mut() {
            client.acquire(Instant::now() + rules::LEASE)?;
            client.release()?;
        }
        workers.extend(clients.into_iter().map(Worker::new));
    }
    nodes.inject_fault();
    let (before, raised_before) = (nodes.calls(&COMMANDS)?, nodes.calls(&[RAISE])?);
    let logs = run_workers(workers, case.locks, case.window())?;
    let (sent, raised) = (
        nodes.calls(&COMMANDS)? - before,
        nodes.calls(&[RAISE])? - raised_before,
    );
    Ok(Sample {
        raises: logs.outcome(raised).commands,
        outcome: logs.outcome(sent),
    })
}

fn add(case: Case, samples: &Samples, summary: &mut Summary) {
    let metrics = [
        ACQUISITIONS,
        WAIT_P50,
        WAIT_P99,
        WAIT_MAX,
        FAIRNESS,
        contention::COMMANDS,
    ];
    for (rule, samples) in samples {
        for (name, unit, value) in metrics {
            let stats = stats_of(samples, |sample| value(&sample.outcome));
            if !stats.median.is_finite() {
                continue;
            }
            let figure = Figure::new(name, stats)
                .unit(unit)
                .of(*rule)
                .case(case.to_string());
            let has_target = name == FAIRNESS.0 && *rule == DLOCK && case.is_contended();
            summary.add(if has_target { figure.at_least(0.98) } else { figure });
        }
    }
}

/// With one server in the same rounds, and with itself while all servers are healthy.
fn compare(case: Case, samples: &Samples, healthy: f64, summary: &mut Summary) {
    let [(_, ours), (_, single), ..] = &samples[..] else {
        return;
    };
    let mut add = |figure: Figure| summary.add(figure.case(case.to_string()));
    let ratio = |name, value: fn(&Outcome) -> f64| {
        let pairs: Vec<_> = ours.iter().zip(single).collect();
        Figure::new(
            name,
            stats_of(&pairs, |(ours, single)| {
                value(&ours.outcome) / value(&single.outcome)
            }),
        )
    };
    if case.locks > 1 {
        // A server that is down is looked at by EXTEND too.
        if case.fault == Fault::None {
            let raises = Figure::new("raises per acquisition", stats_of(ours, |sample| sample.raises));
            add(raises.at_most(0.02));
        }
    } else if !case.is_contended() {
        add(ratio("wait p50 / one server", |outcome| outcome.wait_p50).at_most(2.2));
    } else {
        add(ratio("acquisitions / one server", |outcome| outcome.acquisitions).at_least(0.9));
        add(ratio("wait p99 / one server", |outcome| outcome.wait_p99).at_most(3.0));
        let turn_ms = 1e3 / median(single, |outcome| outcome.acquisitions);
        let longest = 2.0 * turn_ms * case.clients as f64 + ms(NODE_TIMEOUT);
        let wait_max = stats_of(ours, |sample| sample.outcome.wait_max / longest);
        add(Figure::new("wait max / (2 FIFO turns + node timeout)", wait_max).at_most(1.0));
        if case.fault != Fault::None {
            let to_healthy = stats_of(ours, |sample| sample.outcome.acquisitions / healthy);
            add(Figure::new("acquisitions / healthy", to_healthy).at_least(0.9));
        }
    }
}

fn median(samples: &[Sample], value: fn(&Outcome) -> f64) -> f64 {
    stats_of(samples, |sample| value(&sample.outcome)).median
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            fault,
            processes,
            clients,
            locks,
        } = self;
        write!(
            f,
            "{network}, {fault}, {clients} clients in {processes}, {locks} locks"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_without_the_first_server_grants_the_lock() -> Result<()> {
        for (fault, rules) in [(Fault::Dead, &RULES[..]), (Fault::Stopped, &RULES[..3])] {
            let case = Case {
                network: Network::Remote,
                fault,
                processes: 2,
                clients: 4,
                locks: 1,
            };
            for rule in rules {
                let outcome = one_round(*rule, case)?.outcome;
                assert!(outcome.acquisitions > 0.0, "{}, {case}", rule.name);
            }
        }
        Ok(())
    }
}
