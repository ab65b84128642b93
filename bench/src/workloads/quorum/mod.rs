//! A lock over five servers, free and contended, while all are up, or one is stopped or killed. It is compared with a
//! lock on one server, the one in the middle.

mod clients;
mod network;

use std::time::Duration;

use super::contention::{Window, acquired, add_waits, run};
use crate::error::Result;
use crate::results::{DLOCK, Results};
use crate::scale::{Scale, turns};
use clients::{NODE_TIMEOUT, of_process};
use network::{FAULTS, Fault, Network};

const ONE_SERVER: &str = "one server";

/// Processes have connections of their own.
struct Size {
    processes: usize,
    clients: usize,
    /// One for all clients, or one each.
    locks: usize,
}

const SIZES: [Size; 4] = [
    Size::new(1, 1, 1),
    Size::new(4, 8, 1),
    Size::new(4, 64, 1),
    Size::new(4, 64, 64),
];

impl Size {
    const fn new(processes: usize, clients: usize, locks: usize) -> Self {
        Self {
            processes,
            clients,
            locks,
        }
    }
}

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    for size in &SIZES {
        // With a lock each, only raises are of interest.
        let ours = if size.locks > 1 { &FAULTS[..1] } else { &FAULTS[..] };
        let ours = ours.iter().map(|fault| (DLOCK, fault));
        let cases: Vec<_> = ours
            .chain((size.locks == 1).then_some((ONE_SERVER, &FAULTS[0])))
            .collect();
        for (round, index) in turns(scale.rounds(3), cases.len()) {
            one_round(scale, size, cases[index], round, results)?;
        }
    }
    Ok(())
}

fn one_round(
    scale: &Scale,
    size: &Size,
    (implementation, fault): (&str, &Fault),
    round: usize,
    results: &mut Results,
) -> Result<()> {
    let mut network = Network::start()?;
    let window = Window {
        section: Duration::from_millis(u64::from(size.clients > 1)),
        // Until clients know which server is down, and all of them have their connections.
        warm_up: (2 * NODE_TIMEOUT).min(4 * scale.window()),
        duration: scale.window(),
    };
    let (measured, warm_up) = (window.duration.as_secs_f64(), window.warm_up.as_secs_f64());
    let share = size.clients / size.processes;
    let keys = |process| {
        (process * share..(process + 1) * share).map(|client| format!("lock:{}", client % size.locks))
    };
    let processes =
        (0..size.processes).map(|process| of_process(&network, implementation == DLOCK, keys(process)));
    let clients = processes
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    network.inject(fault);
    let before = network.calls(fault)?;
    let logs = run(clients, size.locks, window)?;
    let after = network.calls(fault)?;
    let locks = if size.locks > 1 { ", a lock each" } else { "" };
    let mut row = results
        .round(&format!("{}{locks}", fault.name), implementation, round)
        .clients(size.clients);
    add_waits(&logs, measured, &mut row)?;
    // Of the whole time: the warm-up is as busy.
    let acquired = acquired(&logs).max(1) as f64 * (measured + warm_up) / measured;
    row.add(
        "commands per acquisition",
        "",
        (after.commands - before.commands) / acquired,
    );
    row.add(
        "raises per acquisition",
        "",
        (after.raises - before.raises) / acquired,
    );
    Ok(())
}
