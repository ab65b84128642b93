//! A lock on a majority of five servers, uncontended and contended, while the first server is healthy, stopped or dead.
//! The lower bound is a lock on one server, the one in the middle.

mod nodes;
mod rules;

use std::fmt;
use std::time::{Duration, Instant};

use crate::Result;
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::workloads::Bench;
use crate::workloads::contention::{Outcome, Window, Worker, run_workers};
use nodes::{Fault, Network, Nodes};
use rules::{NODE_TIMEOUT, RULES, Rule};

/// The requests of all rules.
const COMMANDS: [&str; 5] = ["dlock.acquire", "dlock.extend", "dlock.release", "set", "eval"];
/// Until clients know which server is down.
const WARM_UP: Duration = NODE_TIMEOUT.saturating_mul(3);

/// Clients, spread over processes: each process has its own connections.
#[derive(Clone, Copy)]
struct Case {
    network: Network,
    fault: Fault,
    processes: usize,
    clients: usize,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let rounds = bench.rounds(3, 1);
    for case in cases(bench.quick) {
        bench.progress.step("quorum", &case.to_string());
        let mut outcomes: Vec<_> = RULES.iter().map(|rule| (rule, Vec::new())).collect();
        for _ in 0..rounds {
            for (rule, outcomes) in &mut outcomes {
                outcomes.push(one_round(**rule, case)?);
            }
        }
        add(case, &outcomes, summary);
    }
    summary.note(
        "one server: DLOCK on the server in the middle, which stays healthy. A process is a runtime with connections of \
         its own. Servers, clients and other programs share the cores: five requests are five times the work",
    );
    Ok(())
}

/// One client measures the latency, several contend and work for a millisecond.
fn cases(is_quick: bool) -> impl Iterator<Item = Case> {
    let sizes = if is_quick {
        &[(1, 1), (1, 8)][..]
    } else {
        &[(1, 1), (1, 8), (4, 8), (1, 64), (4, 64)]
    };
    let networks = Network::ALL.into_iter();
    networks.flat_map(move |network| {
        let faults = Fault::ALL.into_iter();
        faults.flat_map(move |fault| {
            sizes.iter().map(move |&(processes, clients)| Case {
                network,
                fault,
                processes,
                clients,
            })
        })
    })
}

impl Case {
    fn window(self) -> Window {
        Window {
            critical_section: Duration::from_millis(u64::from(self.clients > 1)),
            warm_up: WARM_UP,
            duration: Duration::from_millis(if self.clients > 8 { 3_000 } else { 1_000 }),
        }
    }
}

fn one_round(rule: Rule, case: Case) -> Result<Outcome> {
    let mut nodes = Nodes::start(case.network, case.fault)?;
    let mut workers = Vec::new();
    for _ in 0..case.processes {
        let mut clients = (rule.open)(&nodes, "lock", case.clients / case.processes)?;
        // Connects.
        if let Some(client) = clients.first_mut() {
            client.acquire(Instant::now() + rules::LEASE)?;
            client.release()?;
        }
        workers.extend(clients.into_iter().map(Worker::new));
    }
    nodes.inject_fault();
    let before = nodes.calls(&COMMANDS)?;
    let logs = run_workers(workers, 1, case.window())?;
    Ok(logs.outcome(nodes.calls(&COMMANDS)? - before))
}

fn add(case: Case, outcomes: &[(&Rule, Vec<Outcome>)], summary: &mut Summary) {
    let metrics: [(&str, &'static str, fn(&Outcome) -> f64); 6] = [
        ("acquisitions", "/s", |outcome| outcome.acquisitions),
        ("wait p50", "ms", |outcome| outcome.wait_p50),
        ("wait p99", "ms", |outcome| outcome.wait_p99),
        ("wait max", "ms", |outcome| outcome.wait_max),
        ("fairness (Jain)", "", |outcome| outcome.fairness),
        ("commands", "per acquisition", |outcome| outcome.commands),
    ];
    for (rule, rounds) in outcomes {
        for (metric, unit, value) in metrics {
            let stats = stats_of(rounds, value);
            if stats.median.is_finite() {
                summary.add(
                    Figure::new(metric, stats)
                        .unit(unit)
                        .of(rule.name)
                        .case(case.to_string()),
                );
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            fault,
            processes,
            clients,
        } = self;
        write!(f, "{network}, {fault}, {clients} clients in {processes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_without_the_first_server_grants_the_lock() -> Result<()> {
        for (fault, rules) in [(Fault::Dead, &RULES[..]), (Fault::Stopped, &RULES[..2])] {
            let case = Case {
                network: Network::Remote,
                fault,
                processes: 2,
                clients: 4,
            };
            for rule in rules {
                let outcome = one_round(*rule, case)?;
                assert!(outcome.acquisitions > 0.0, "{}, {case}", rule.name);
            }
        }
        Ok(())
    }
}
