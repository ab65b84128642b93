//! A lock that many clients want: how often it changes hands, how long they wait, what they send meanwhile, and
//! whether all have their share.

mod shift;

#[cfg(test)]
pub use shift::Group;
pub use shift::{Outcome, Shift, Worker, work};

use std::time::Duration;

use crate::Result;
use crate::contenders::etcd::Etcd;
use crate::contenders::{self, Waiting, Wanted, rslock};
use crate::results::plot::{Plot, Series, Shape};
use crate::results::spread::{Spread, spread};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const LEASE_MS: u64 = 30_000;

/// How many clients, and for how long each works inside.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    clients: usize,
    section_ms: u64,
}

const fn case(clients: usize, section_ms: u64) -> Case {
    Case { clients, section_ms }
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

/// Of these there are curves over the number of clients.
const CURVE_SECTION_MS: u64 = 1;

const SHORTEST_SHIFT: Duration = Duration::from_millis(400);
const LONGEST_SHIFT: Duration = Duration::from_millis(2_100);
/// Each can have the lock so often, on a machine that has nothing else to do.
const TURNS: u32 = 8;
/// With fewer turns, who was last when the shift ended would make the index of fairness.
const FAIR_TURNS: f64 = 6.0;

impl Case {
    fn name(self) -> String {
        format!("{} clients, {} ms of work inside", self.clients, self.section_ms)
    }

    /// Long enough for all, within reason.
    fn shift(self) -> Shift {
        let section = Duration::from_millis(self.section_ms);
        Shift {
            section,
            lasts: self.turns(section).clamp(SHORTEST_SHIFT, LONGEST_SHIFT),
        }
    }

    /// What enough turns for all take.
    fn turns(self, section: Duration) -> Duration {
        section * TURNS * u32::try_from(self.clients).unwrap_or(u32::MAX)
    }
}

/// Of each contender, DLOCK first, one outcome a round.
struct Shown {
    case: Case,
    contenders: Vec<(&'static str, Vec<Outcome>)>,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start(&bench.module)?;
    let others = contenders::others(&bench.module)?;
    let contenders = contenders::waiting(&server, etcd.is_some())?;
    let cases = if bench.quick { &QUICK[..] } else { &FULL };
    let count = bench.rounds(3, 1);
    let mut all = Vec::new();
    for &case in cases {
        bench.progress.step("contention", &case.name());
        let mut shown = Shown {
            case,
            contenders: contenders
                .iter()
                .map(|contender| (contender.name, Vec::new()))
                .collect(),
        };
        for round in 0..count {
            let server = Server::start(&bench.module)?;
            for turn in 0..contenders.len() {
                let index = (round + turn) % contenders.len();
                let outcome = one_round(&server, &others, etcd.as_ref(), contenders[index], case, round)?;
                shown.contenders[index].1.push(outcome);
            }
        }
        add(&shown, summary);
        all.push(shown);
    }
    for (file, title, metric) in [
        (
            "contention-wait",
            "The longest wait for a contended lock",
            WAIT_MAX,
        ),
        (
            "contention-throughput",
            "How often a contended lock is taken",
            ACQUISITIONS,
        ),
        (
            "contention-commands",
            "What is sent for one acquisition",
            COMMANDS,
        ),
        (
            "contention-fairness",
            "Whether all have a contended lock as often: 1 = they have",
            FAIRNESS,
        ),
    ] {
        summary.plot(curve(&all, file, title, metric));
    }
    summary.note(format!(
        "medians of {count} alternating rounds of {SHORTEST_SHIFT:?} to {LONGEST_SHIFT:?}; in brackets: dlock / that \
         one; who still waited at the end counts with its wait so far; fairness (Jain): 1 = all had as many"
    ));
    summary.note(
        "who polls often has the lock again at once, before anybody else looks: that makes a short p50 and many \
         acquisitions, and the longest waits of the others",
    );
    for missing in contenders::missing(&mut server.connect()?, etcd.is_some())? {
        summary.note(missing);
    }
    summary.note("SET NX PX + DEL and SET NX PX + Lua release take no part: they have no rule of waiting but to sleep for 2 s");
    if etcd.is_some() {
        summary.note("etcd does more: every step is on disk before it is answered; its requests go by its JSON gateway");
    }
    Ok(())
}

fn one_round(
    server: &Server,
    others: &[Server],
    etcd: Option<&Etcd>,
    contender: Waiting,
    case: Case,
    round: usize,
) -> Result<Outcome> {
    // A name of its own: what another left behind must not matter.
    let key = format!(
        "lock:{}:{}:{}:{round}",
        contender.name, case.clients, case.section_ms
    );
    let open = |number| {
        (contender.open)(&Wanted {
            server,
            others,
            etcd,
            key: &key,
            number,
            lease_ms: LEASE_MS,
        })
    };
    let clients = (0..case.clients).map(open).collect::<Result<Vec<_>>>()?;
    let counted_by_server = clients.iter().any(|client| client.commands().is_none());
    let before = rslock_commands(server)?;
    let workers = clients.into_iter().map(Worker::alone).collect();
    let group = work(workers, 1, case.shift())?;
    let commands = if counted_by_server {
        rslock_commands(server)? - before
    } else {
        group.commands
    };
    Ok(group.outcome(commands))
}

/// Its clients cannot tell.
fn rslock_commands(server: &Server) -> Result<f64> {
    rslock::COMMANDS.iter().map(|command| server.calls(command)).sum()
}

/// A number of an outcome, and how it is called.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    unit: &'static str,
    of: fn(&Outcome) -> f64,
}

const ACQUISITIONS: Metric = Metric {
    name: "acquisitions",
    unit: "/s",
    of: |outcome| outcome.acquisitions,
};
const WAIT_MAX: Metric = Metric {
    name: "wait max",
    unit: "ms",
    of: |outcome| outcome.wait_max,
};
const FAIRNESS: Metric = Metric {
    name: "fairness (Jain)",
    unit: "",
    of: |outcome| outcome.fairness,
};
const COMMANDS: Metric = Metric {
    name: "commands",
    unit: "an acquisition",
    of: |outcome| outcome.commands,
};

fn add(shown: &Shown, summary: &mut Summary) {
    let metric = |name, unit, of| Metric { name, unit, of };
    let compared = [
        ACQUISITIONS,
        metric("wait p50", "ms", |outcome| outcome.wait_p50),
        metric("wait p99", "ms", |outcome| outcome.wait_p99),
        WAIT_MAX,
    ];
    let (_, ours) = &shown.contenders[0];
    let shows_fairness = ours.iter().all(|outcome| outcome.turns >= FAIR_TURNS);
    for (index, (contender, rounds)) in shown.contenders.iter().enumerate() {
        let figure = |metric: Metric| {
            let value = spread(rounds, metric.of);
            let figure = Figure::new(metric.name, value).unit(metric.unit);
            figure.of(*contender).case(shown.case.name())
        };
        for metric in compared {
            let pairs: Vec<_> = ours.iter().zip(rounds).collect();
            let ratio = spread(&pairs, |(ours, theirs)| (metric.of)(ours) / (metric.of)(theirs));
            // Nobody may have had it at all, in so short a time.
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
        if shows_fairness && rounds.iter().all(|outcome| outcome.fairness.is_finite()) {
            let fairness = figure(FAIRNESS);
            summary.add(if index == 0 {
                fairness.at_least(0.99)
            } else {
                fairness
            });
        }
    }
}

fn curve(all: &[Shown], file: &'static str, title: &str, metric: Metric) -> Plot {
    let cases = || {
        all.iter()
            .filter(|shown| shown.case.section_ms == CURVE_SECTION_MS)
    };
    let names = cases().next().map_or(&[][..], |shown| &shown.contenders);
    let series = names.iter().enumerate().map(|(index, (name, _))| {
        let points = cases().map(|shown| {
            (
                shown.case.clients as f64,
                spread(&shown.contenders[index].1, metric.of),
            )
        });
        Series {
            name: (*name).into(),
            // What did not happen has no place on a logarithmic axis.
            points: points
                .filter(|(_, value): &(f64, Spread)| value.low > 0.0 && value.high.is_finite())
                .collect(),
        }
    });
    let series: Vec<_> = series.collect();
    Plot {
        file,
        title: title.into(),
        about: format!(
            "one lock, {CURVE_SECTION_MS} ms of work inside; rounds of 0.4 s, 2 s for 256 clients: no wait can be longer"
        ),
        shape: Shape::Lines {
            x: "clients that want the lock",
            y: metric.name,
            unit: metric.unit,
            series,
        },
    }
}
