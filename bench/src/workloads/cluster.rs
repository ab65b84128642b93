//! Uncontended pairs on clusters of one, two and three primaries.

use std::thread;
use std::time::Instant;

use dlock_core::cluster::slots::slot_of;

use crate::error::Result;
use crate::implementations::command::{Implementation, short_names};
use crate::results::table::Summary;
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::pairs::{Cost, Pairs, compare};

const SLOTS: usize = 16_384;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (pairs, rounds) = (bench.rounds(100_000, 50_000), bench.rounds(5, 3));
    for primaries in 1..=3 {
        run(bench, primaries, pairs, rounds, summary)?;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    summary.note(format!(
        "all primaries, and one client for each, share {cores} cores: that limits the throughput of the cluster, but \
         not the CPU per pair"
    ));
    Ok(())
}

fn run(bench: &Bench, primaries: u16, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    let case = case(primaries);
    bench.progress.step("cluster", &case);
    let nodes = Server::cluster(primaries);
    let both = compare(rounds, |implementation| cost(&nodes, implementation, pairs))?;
    both.add(summary, &case, "CPU per pair, all nodes", "us", |cost| cost.cpu);
    both.add(summary, &case, "throughput", "pairs/s", Cost::per_second);
    Ok(())
}

fn case(primaries: u16) -> String {
    match primaries {
        1 => "1 primary".into(),
        _ => format!("{primaries} primaries"),
    }
}

/// One client per node, all at once. The CPU of a pair is that of all nodes together.
fn cost(nodes: &[Server], implementation: &Implementation, pairs: usize) -> Result<Cost> {
    let shares = (0..nodes.len()).map(|node| {
        let names = (0..pairs).map(short_names);
        let own = names.filter(move |names| node_of(&names.key, nodes.len()) == node);
        Pairs::of(implementation, own)
    });
    let shares: Vec<_> = shares.collect();
    let start = Instant::now();
    let cpu = thread::scope(|scope| {
        let clients: Vec<_> = nodes
            .iter()
            .zip(&shares)
            .map(|(node, share)| scope.spawn(move || cpu_of(node, share).map_err(|error| error.to_string())))
            .collect();
        let cpus = clients.into_iter().map(|client| client.join());
        cpus.map(|cpu| Ok(cpu.map_err(|_| "a client panicked")??))
            .sum::<Result<f64>>()
    })?;
    Ok(Cost {
        cpu: cpu / pairs as f64,
        wall: start.elapsed().as_secs_f64() * 1e6 / pairs as f64,
    })
}

/// In microseconds, of all pairs of the share.
fn cpu_of(node: &Server, share: &Pairs) -> Result<f64> {
    Ok(share.cost(&mut node.connect()?)?.cpu * share.count() as f64)
}

/// Slots are assigned evenly and in order.
fn node_of(key: &str, nodes: usize) -> usize {
    let slot = slot_of(key.as_bytes());
    (0..nodes)
        .rfind(|node| slot >= first_slot(*node, nodes))
        .unwrap_or(0)
}

fn first_slot(node: usize, nodes: usize) -> usize {
    SLOTS * node / nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{bench, rows};

    #[test]
    fn cluster_of_two_primaries_serves_all_keys() -> Result<()> {
        let mut summary = Summary::default();
        run(&bench(), 2, 600, 1, &mut summary)?;
        assert_eq!(rows(&summary, &case(2), "throughput").len(), 2);
        Ok(())
    }

    #[test]
    fn slot_of_key_maps_to_one_node() {
        assert_eq!((first_slot(1, 3), first_slot(3, 3)), (5_461, SLOTS));
        let shares = (0..3_000).fold([0; 3], |mut shares, number| {
            shares[node_of(&short_names(number).key, 3)] += 1;
            shares
        });
        assert!(
            shares.iter().all(|share| (800..1_200).contains(share)),
            "{shares:?}"
        );
    }
}
