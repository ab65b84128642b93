//! A lock on a majority of five servers, uncontended and contended, while all are up, or one is stopped or killed. It is
//! compared with a lock on one server, the one in the middle.

mod clients;
mod majority;
mod nodes;
mod process;
mod redis_rs;
mod rules;
mod sockets;

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::results::DLOCK;
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::stats::{Stats, ms, stats_of};
use crate::results::table::{Figure, Summary};
use crate::steal::{CpuTime, MAX_STEAL};
use crate::workloads::bench::Bench;
use crate::workloads::contention::{
    ACQUISITIONS, COMMANDS, FAIRNESS, Metric, Outcome, WAIT_MAX, WAIT_P50, WAIT_P99, Window, WorkerLogs,
};
use majority::NODE_TIMEOUT;
use nodes::{Network, Nodes, Situation};
pub use process::serve;
use process::{Process, Task};
use rules::{RULES, Rule};

/// The requests of all rules.
const REQUESTS: [&str; 5] = ["dlock.acquire", RAISE, "dlock.release", "set", "eval"];
const RAISE: &str = "dlock.extend";

const METRICS: [Metric; 6] = [ACQUISITIONS, WAIT_P50, WAIT_P99, WAIT_MAX, FAIRNESS, COMMANDS];

/// Clients, spread over processes: each process has its own connections.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size {
    processes: usize,
    clients: usize,
    /// One for all clients, or one each.
    locks: usize,
}

/// One client measures the latency, several contend and work for a millisecond.
const SIZES: [Size; 6] = [
    Size::new(1, 1, 1),
    Size::new(1, 8, 1),
    PLOTTED,
    Size::new(1, 64, 1),
    Size::new(4, 64, 1),
    Size::new(4, 64, 64),
];
const PLOTTED: Size = Size::new(4, 8, 1);

/// How often a round is measured at most. If the machine was never quiet, the quietest counts.
const TRIES: usize = 4;

struct Sample {
    outcome: Outcome,
    /// EXTENDs of the first server for each acquisition: as it has the smallest fence, a third round raises it. No lease
    /// is renewed so soon.
    third_rounds: f64,
    /// CPU time of the whole machine for each acquisition: of clients, proxies and servers.
    cpu_ms: f64,
    /// Of the CPU time that they could have used, what the hypervisor withheld. NaN where the system does not tell.
    steal: f64,
}

/// A rule in one situation.
struct Row {
    rule: &'static Rule,
    situation: Situation,
    /// One per round.
    samples: Vec<Sample>,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (networks, sizes) = if bench.quick {
        (&[Network::Remote][..], &SIZES[..3])
    } else {
        (&[Network::Local, Network::Remote][..], &SIZES[..])
    };
    for network in networks {
        for size in sizes {
            bench.progress.step("quorum", &format!("{network}, {size}"));
            let rows = rows(bench, *network, *size)?;
            report(&format!("{network}, {size}"), *size, &rows, summary);
            if (*network, *size) == (Network::Remote, PLOTTED) {
                plot(&format!("servers {network}, {size}"), &rows, summary);
            }
        }
    }
    summary.note(
        "one server: DLOCK on the server in the middle, which never fails. redis-rs alone: the requests of dlock without \
         the guarantees of its client. Sockets alone: those of a free lock over blocking sockets, without a client library. \
         Waits that are unfinished at the end count as they are. Requests: those that servers which are up have run",
    );
    summary.note(format!(
        "clients, the five servers and the network share the cores. CPU: of all of them. Steal: of the CPU time that \
         they could have used, what the hypervisor withheld. A round with more than {:.0} % is measured again, up to \
         {TRIES} times while there is time to wait, and the quietest counts",
        MAX_STEAL * 100.0,
    ));
    Ok(())
}

/// All rules in all situations take turns.
fn rows(bench: &Bench, network: Network, size: Size) -> Result<Vec<Row>> {
    let situations = RULES.iter().flat_map(|rule| {
        let situations = rule.situations.iter();
        situations.map(move |situation| (rule, *situation))
    });
    // With a lock each, only third rounds are of interest: a server that is down is looked at by EXTEND too.
    let is_measured = |rule: &Rule, situation| match size.locks {
        1 => rule.waits || size.clients == 1,
        _ => rule.name == DLOCK && situation == Situation::ALL_UP,
    };
    let row = |(rule, situation)| Row {
        rule,
        situation,
        samples: Vec::new(),
    };
    let situations = situations.filter(|(rule, situation)| is_measured(rule, *situation));
    let mut rows: Vec<_> = situations.map(row).collect();
    let rounds = |row: &Row| if bench.quick { 1 } else { row.rounds(network, size) };
    for round in 0..rows.iter().map(rounds).max().unwrap_or_default() {
        for row in rows.iter_mut().filter(|row| round < rounds(row)) {
            let sample = quiet_round(bench, row.rule, network, row.situation, size)?;
            row.samples.push(sample);
        }
    }
    Ok(rows)
}

fn quiet_round(
    bench: &Bench,
    rule: &Rule,
    network: Network,
    situation: Situation,
    size: Size,
) -> Result<Sample> {
    let mut quietest = one_round(rule, network, situation, size)?;
    for _ in 1..TRIES {
        let is_disturbed = quietest.steal > MAX_STEAL;
        if !is_disturbed || bench.wait_budget.is_used_up() {
            break;
        }
        bench.wait_budget.wait_for_quiet()?;
        let begun = Instant::now();
        let again = one_round(rule, network, situation, size)?;
        bench.wait_budget.spend(begun.elapsed());
        if again.steal < quietest.steal {
            quietest = again;
        }
    }
    Ok(quietest)
}

fn one_round(rule: &Rule, network: Network, situation: Situation, size: Size) -> Result<Sample> {
    let mut nodes = Nodes::start(network)?;
    let directory = tempfile::tempdir()?;
    let lock = |client: usize| directory.path().join(format!("lock:{}", client % size.locks));
    let locks: Vec<_> = (0..size.clients).map(lock).collect();
    let start = |locks: &[_]| {
        Process::start(&Task {
            rule: rule.name.into(),
            urls: nodes.urls(),
            locks: locks.into(),
            window: size.window(),
        })
    };
    let processes = locks.chunks(size.clients / size.processes).map(start);
    let mut processes = processes.collect::<Result<Vec<_>>>()?;
    nodes.inject(situation);
    let count = |commands: &[&str]| nodes.calls(commands, situation);
    let third_rounds = || nodes.calls_at_first(RAISE, situation);
    let (sent, third_before, before) = (count(&REQUESTS)?, third_rounds()?, CpuTime::now());
    processes.iter_mut().try_for_each(Process::begin)?;
    let logs = processes.into_iter().map(Process::finish);
    let logs = WorkerLogs::merged(logs.collect::<Result<_>>()?);
    let cpu = before
        .zip(CpuTime::now())
        .map(|(before, after)| after.since(before));
    Ok(Sample {
        outcome: logs.outcome(count(&REQUESTS)? - sent),
        third_rounds: logs.outcome(third_rounds()? - third_before).commands,
        cpu_ms: logs.outcome(cpu.map_or(f64::NAN, |cpu| ms(cpu.busy))).commands,
        steal: cpu.map_or(f64::NAN, CpuTime::steal_share),
    })
}

impl Size {
    const fn new(processes: usize, clients: usize, locks: usize) -> Self {
        Self {
            processes,
            clients,
            locks,
        }
    }

    fn window(self) -> Window {
        Window {
            critical_section: Duration::from_millis(u64::from(self.clients > 1)),
            // Until clients know which server is down, and all of them have their connections.
            warm_up: 2 * NODE_TIMEOUT,
            duration: Duration::from_millis(match self.clients {
                1 => 300,
                ..=8 => 1_000,
                _ => 1_500,
            }),
        }
    }

    fn is_contended(self) -> bool {
        self.clients > self.locks
    }
}

impl Row {
    /// More on loopback for one client, and while all servers are up. There, rounds vary by as much as a target is away:
    /// it matters which threads share a core.
    fn rounds(&self, network: Network, size: Size) -> usize {
        let is_close = size.clients == 1 || self.situation == Situation::ALL_UP;
        if network == Network::Local && is_close {
            9
        } else {
            3
        }
    }

    fn stats(&self, of: impl Fn(&Outcome) -> f64) -> Stats {
        stats_of(&self.samples, |sample| of(&sample.outcome))
    }

    /// Of both in the same rounds.
    fn compared(&self, other: &Self, of: impl Fn(&Outcome, &Outcome) -> f64) -> Stats {
        let rounds: Vec<_> = self.samples.iter().zip(&other.samples).collect();
        stats_of(&rounds, |(ours, other)| of(&ours.outcome, &other.outcome))
    }
}

fn report(case: &str, size: Size, rows: &[Row], summary: &mut Summary) {
    for row in rows {
        let metrics = METRICS.map(|(name, unit, of)| (name, unit, row.stats(of)));
        let cpu = (
            "CPU",
            "ms per acquisition",
            stats_of(&row.samples, |sample| sample.cpu_ms),
        );
        let steal = stats_of(&row.samples, |sample| sample.steal * 100.0);
        for (name, unit, stats) in metrics.into_iter().chain([cpu, ("steal", "%", steal)]) {
            if stats.median.is_finite() {
                summary.add(Figure::new(name, stats).unit(unit).of(row.to_string()).case(case));
            }
        }
    }
    let all_up = |name| {
        let mut rows = rows.iter();
        rows.find(move |row| row.rule.name == name && row.situation == Situation::ALL_UP)
    };
    for ours in rows.iter().filter(|row| row.rule.name == DLOCK) {
        let figures = match (all_up(DLOCK), all_up("one server")) {
            (Some(healthy), Some(single)) => targets(size, ours, healthy, single),
            _ => vec![third_rounds(ours)],
        };
        for figure in figures {
            summary.add(figure.of(ours.to_string()).case(format!("{case}: targets")));
        }
    }
}

/// With a lock each.
fn third_rounds(ours: &Row) -> Figure {
    let rounds = stats_of(&ours.samples, |sample| sample.third_rounds);
    Figure::new("third rounds per acquisition", rounds).at_most(0.02)
}

/// What is expected of our lock: beside one server, and beside itself while all servers are up.
fn targets(size: Size, ours: &Row, healthy: &Row, single: &Row) -> Vec<Figure> {
    let to_single = |(name, _, of): Metric| {
        let stats = ours.compared(single, |ours, single| of(ours) / of(single));
        Figure::new(format!("{name} / one server"), stats)
    };
    if !size.is_contended() {
        return vec![to_single(WAIT_P50).at_most(2.2)];
    }
    let longest = ours.compared(single, |ours, single| {
        let queue_ms = 1e3 / single.acquisitions * size.clients as f64;
        ours.wait_max / (2.0 * queue_ms + ms(NODE_TIMEOUT))
    });
    let mut figures = vec![
        to_single(WAIT_P99).at_most(3.0),
        Figure::new("wait max / (2 FIFO rounds + node timeout)", longest).at_most(1.0),
        Figure::new(FAIRNESS.0, ours.stats(FAIRNESS.2)).at_least(0.98),
    ];
    if ours.situation == Situation::ALL_UP {
        figures.push(to_single(ACQUISITIONS).at_least(0.9));
    } else {
        // For information: with the first server down, a majority is farther away than the server in the middle.
        figures.push(to_single(ACQUISITIONS));
        let to_healthy = ours.compared(healthy, |ours, healthy| ours.acquisitions / healthy.acquisitions);
        figures.push(Figure::new("acquisitions / all up", to_healthy).at_least(0.9));
    }
    figures
}

fn plot(case: &str, rows: &[Row], summary: &mut Summary) {
    for (file, title, (_, unit, of)) in [
        (
            "quorum-throughput",
            "Locks over five servers: acquisitions",
            ACQUISITIONS,
        ),
        (
            "quorum-wait-p99",
            "Locks over five servers: 99th percentile of waits",
            WAIT_P99,
        ),
        (
            "quorum-wait-max",
            "Locks over five servers: longest wait",
            WAIT_MAX,
        ),
    ] {
        let bar = |row: &Row| Bar {
            name: row.to_string(),
            value: row.stats(of),
        };
        summary.plot(Plot {
            file,
            title: title.into(),
            about: format!("{case}, 1 ms critical section; rounds of 1 s: no wait can be longer"),
            shape: Shape::Bars {
                unit,
                bars: rows.iter().map(bar).collect(),
            },
        });
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self {
            processes,
            clients,
            locks,
        } = *self;
        write!(f, "{clients} client{} in {processes} process", plural(clients))?;
        f.write_str(if processes == 1 { "" } else { "es" })?;
        if locks > 1 {
            write!(f, ", {locks} locks")?;
        }
        Ok(())
    }
}

/// The name of its line in tables.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule.name)?;
        if self.rule.situations.len() > 1 {
            write!(f, ", {}", self.situation)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_every_rule_is_granted_to_clients_of_other_processes() -> Result<()> {
        for rule in &RULES {
            let size = if rule.waits { Size::new(2, 4, 1) } else { SIZES[0] };
            for situation in rule.situations.iter().rev().step_by(3) {
                let sample = one_round(rule, Network::Remote, *situation, size)?;
                let name = format!("{}, {situation}", rule.name);
                assert!(sample.outcome.acquisitions > 0.0, "{name}");
            }
        }
        Ok(())
    }
}
