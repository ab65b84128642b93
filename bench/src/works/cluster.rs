//! Pairs on a cluster of one, two and three primaries: the locks are spread over them.

use std::thread;
use std::time::{Duration, Instant};

use crc::{CRC_16_XMODEM, Crc};

use crate::Result;
use crate::contenders::command::{Contender, short_names};
use crate::results::table::Summary;
use crate::server::{Server, free_port};
use crate::works::Bench;
use crate::works::pairs::{self, Cost, Pairs};

const SLOTS: usize = 16_384;
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
/// A node serves no sooner than half of this after its start.
const NODE_TIMEOUT_MS: &str = "2000";
const START_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (pairs, rounds) = (bench.rounds(100_000, 50_000), bench.rounds(5, 3));
    for primaries in 1..=3 {
        run(bench, primaries, pairs, rounds, summary)?;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    summary.note(format!(
        "{cores} cores carry all primaries and the clients, one for each primary: what a cluster serves a second \
         is bounded by that, the CPU of a pair is not"
    ));
    Ok(())
}

fn run(bench: &Bench, primaries: usize, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    let case = case(primaries);
    bench.progress.step("cluster", &case);
    let nodes = start(bench, primaries)?;
    let rounds = pairs::rounds(rounds, |contender| cost(&nodes, contender, pairs))?;
    let mut add = |metric, unit, of| pairs::add(summary, &case, metric, unit, &rounds, of);
    add("CPU of a pair, all nodes", "us", |cost: &Cost| cost.cpu);
    add("served a second", "pairs", |cost| cost.a_second());
    Ok(())
}

fn case(primaries: usize) -> String {
    match primaries {
        1 => "1 primary".into(),
        _ => format!("{primaries} primaries"),
    }
}

/// One client a node, all at once. The cost of a pair is that of all nodes together.
fn cost(nodes: &[Server], contender: &Contender, pairs: usize) -> Result<Cost> {
    let shares = (0..nodes.len()).map(|node| {
        let names = (0..pairs).map(short_names);
        let own = names.filter(move |names| node_of(&names.key, nodes.len()) == node);
        Pairs::of(contender, own)
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

/// In microseconds, of the whole share.
fn cpu_of(node: &Server, share: &Pairs) -> Result<f64> {
    Ok(share.cost(&mut node.connect()?)?.cpu * share.count() as f64)
}

/// Slots are shared out evenly, in order.
fn node_of(key: &str, nodes: usize) -> usize {
    let slot = slot_of(key);
    (0..nodes)
        .rfind(|node| slot >= first_slot(*node, nodes))
        .unwrap_or(0)
}

/// Of a key without braces.
fn slot_of(key: &str) -> usize {
    usize::from(CRC.checksum(key.as_bytes())) % SLOTS
}

fn first_slot(node: usize, nodes: usize) -> usize {
    SLOTS * node / nodes
}

fn start(bench: &Bench, primaries: usize) -> Result<Vec<Server>> {
    let mut nodes = Vec::new();
    for node in 0..primaries {
        let bus = free_port()?.to_string();
        let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        let settings = [&settings[..], &["--cluster-node-timeout", NODE_TIMEOUT_MS]].concat();
        let server = Server::start_with(&bench.module, &settings)?;
        let connection = &mut server.connect()?;
        let (first, end) = (first_slot(node, primaries), first_slot(node + 1, primaries));
        let (first, last) = (first.to_string(), (end - 1).to_string());
        connection.call(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        // Or the nodes would have to agree on one first.
        connection.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()])?;
        nodes.push((server, bus));
    }
    let (first, first_bus) = nodes.first().ok_or("no nodes")?;
    let port = first.port().to_string();
    for (node, _) in &nodes[1..] {
        node.connect()?
            .call(&["CLUSTER", "MEET", "127.0.0.1", &port, first_bus])?;
    }
    let nodes: Vec<_> = nodes.into_iter().map(|(server, _)| server).collect();
    nodes
        .iter()
        .try_for_each(|node| wait_until_served(node, primaries))?;
    Ok(nodes)
}

fn wait_until_served(node: &Server, primaries: usize) -> Result<()> {
    let connection = &mut node.connect()?;
    let start = Instant::now();
    while start.elapsed() < START_TIMEOUT {
        let info = connection.text(&["CLUSTER", "INFO"])?;
        let known = format!("cluster_known_nodes:{primaries}\r");
        if info.contains("cluster_state:ok") && info.contains(&known) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(format!("the cluster was not served within {START_TIMEOUT:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::testing::{bench, rows};

    #[test]
    fn a_cluster_serves_the_keys_of_each_primary() -> Result<()> {
        let mut summary = Summary::default();
        run(&bench(), 2, 600, 1, &mut summary)?;
        assert_eq!(rows(&summary, &case(2), "served a second").len(), 2);
        Ok(())
    }

    #[test]
    fn each_slot_has_one_node() {
        // What a server says to CLUSTER KEYSLOT.
        assert_eq!((slot_of("lock:000123"), slot_of("lock:000000")), (15_532, 7_581));
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
