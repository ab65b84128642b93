//! A lock on a majority of five servers, uncontended and contended, while all are up, or one is stopped or killed. It is
//! compared with a lock on one server, the one in the middle.

mod clients;
mod majority;
mod nodes;
mod process;
mod rules;

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
use nodes::{Nodes, Situation, distance};
pub use process::serve;
use process::{Process, Task};
use rules::{RULES, Rule};

/// The requests of all rules.
const REQUESTS: [&str; 5] = ["dlock.acquire", "dlock.extend", "dlock.release", "set", "eval"];

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
const SIZES: [Size; 4] = [
    Size::new(1, 1, 1),
    PLOTTED,
    Size::new(4, 64, 1),
    Size::new(4, 64, 64),
];
const PLOTTED: Size = Size::new(4, 8, 1);
const ROUNDS: usize = 3;

/// How often a round is measured at most. If the machine was never quiet, the quietest counts.
const TRIES: usize = 4;

struct Sample {
    outcome: Outcome,
    /// Fences that were raised, for each acquisition. No lease is renewed so soon.
    raises: f64,
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
    let sizes = if bench.quick { &SIZES[..2] } else { &SIZES[..] };
    let distance = distance();
    for size in sizes {
        let case = format!("{distance}, {size}");
        bench.progress.step("quorum", &case);
        let rows = rows(bench, *size)?;
        report(&case, *size, &rows, summary);
        if *size == PLOTTED {
            plot(&format!("servers {case}"), &rows, summary);
        }
    }
    summary.note(
        "one server: DLOCK on the server in the middle, which never fails. Waits that are unfinished at the end count as \
         they are. Requests: those that servers which are up have run",
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
fn rows(bench: &Bench, size: Size) -> Result<Vec<Row>> {
    let situations = RULES.iter().flat_map(|rule| {
        let situations = rule.situations.iter();
        situations.map(move |situation| (rule, *situation))
    });
    // With a lock each, only raises are of interest.
    let is_measured = |rule: &Rule, situation| match size.locks {
        1 => true,
        _ => rule.name == DLOCK && situation == Situation::ALL_UP,
    };
    let row = |(rule, situation)| Row {
        rule,
        situation,
        samples: Vec::new(),
    };
    let situations = situations.filter(|(rule, situation)| is_measured(rule, *situation));
    let mut rows: Vec<_> = situations.map(row).collect();
    for _ in 0..if bench.quick { 1 } else { ROUNDS } {
        for row in &mut rows {
            let sample = quiet_round(bench, row.rule, row.situation, size)?;
            row.samples.push(sample);
        }
    }
    Ok(rows)
}

fn quiet_round(bench: &Bench, rule: &Rule, situation: Situation, size: Size) -> Result<Sample> {
    let mut quietest = one_round(rule, situation, size)?;
    for _ in 1..TRIES {
        let is_disturbed = quietest.steal > MAX_STEAL;
        if !is_disturbed || bench.wait_budget.is_used_up() {
            break;
        }
        bench.wait_budget.wait_for_quiet()?;
        let begun = Instant::now();
        let again = one_round(rule, situation, size)?;
        bench.wait_budget.spend(begun.elapsed());
        if again.steal < quietest.steal {
            quietest = again;
        }
    }
    Ok(quietest)
}

fn one_round(rule: &Rule, situation: Situation, size: Size) -> Result<Sample> {
    let mut nodes = Nodes::start()?;
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
    let raised = || nodes.raises(situation);
    let (sent, raised_before, before) = (count(&REQUESTS)?, raised()?, CpuTime::now());
    processes.iter_mut().try_for_each(Process::begin)?;
    let logs = processes.into_iter().map(Process::finish);
    let logs = WorkerLogs::merged(logs.collect::<Result<_>>()?);
    let cpu = before
        .zip(CpuTime::now())
        .map(|(before, after)| after.since(before));
    Ok(Sample {
        outcome: logs.outcome(count(&REQUESTS)? - sent),
        raises: logs.outcome(raised()? - raised_before).commands,
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
                1 => 1_000,
                _ => 3_000,
            }),
        }
    }

    fn is_contended(self) -> bool {
        self.clients > self.locks
    }
}

impl Row {
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
        for figure in targets(size, ours, &all_up) {
            summary.add(figure.of(ours.to_string()).case(format!("{case}: targets")));
        }
    }
}

/// What is expected of our lock: beside one server, beside Redlock, and beside itself while all servers are up.
fn targets<'a>(size: Size, ours: &Row, all_up: &impl Fn(&'a str) -> Option<&'a Row>) -> Vec<Figure> {
    let mut figures = vec![];
    if ours.situation == Situation::ALL_UP {
        let raises = stats_of(&ours.samples, |sample| sample.raises);
        let most = if size.clients == 1 { 0.01 } else { 0.03 };
        figures.push(Figure::new("raises per acquisition", raises).at_most(most));
    }
    let ratio = |name: &'a str, (metric, _, of): Metric| {
        let other = all_up(name)?;
        let stats = ours.compared(other, |ours, other| of(ours) / of(other));
        Some(Figure::new(format!("{metric} / {name}"), stats))
    };
    if !size.is_contended() {
        let to_redlock = ratio("Redlock", WAIT_P50);
        // With a server down, it is told for information.
        figures.extend(
            to_redlock.map(|figure| match ours.situation == Situation::ALL_UP {
                true => figure.at_most(1.1),
                false => figure,
            }),
        );
        return figures;
    }
    figures.extend(ratio("one server", WAIT_P99).map(|figure| figure.at_most(1.2)));
    figures.push(Figure::new(FAIRNESS.0, ours.stats(FAIRNESS.2)).at_least(0.99));
    figures.push(Figure::new(COMMANDS.0, ours.stats(COMMANDS.2)).at_most(12.0));
    if ours.situation == Situation::ALL_UP {
        figures.extend(ratio("one server", ACQUISITIONS).map(|figure| figure.at_least(0.95)));
    } else if let Some(healthy) = all_up(DLOCK) {
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
            about: format!("{case}, 1 ms critical section; rounds of 3 s: no wait can be longer"),
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
            let size = Size::new(2, 4, 1);
            for situation in rule.situations.iter().rev().step_by(3) {
                let sample = one_round(rule, *situation, size)?;
                let name = format!("{}, {situation}", rule.name);
                assert!(sample.outcome.acquisitions > 0.0, "{name}");
            }
        }
        Ok(())
    }
}
