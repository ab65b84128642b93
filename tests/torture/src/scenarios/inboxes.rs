//! Processes that wait for many locks through an inbox each. They are killed, stopped, and cut from the server on one
//! of their two connections, while servers restart, fail over, or exchange slots.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use dlock_testkit::{Client, Cluster, Server};

use super::cluster::{initial_term, move_slot};
use super::crowd::Crowd;
use super::group::{ReplicationGroup, synchronous};
use super::one_server::with_any_client;
use super::{ScenarioRun, crowd, failover, planned, restart, slot_migration};
use crate::clients::Route;
use crate::clients::inbox::Mistake;
use crate::faults::Power;
use crate::history::{History, Recorder, ServerTerm};
use crate::servers;

const LOCKS: usize = 40;
/// Locks of a slot migrate together.
const SLOTS: usize = 8;
const LEASE_MS: u64 = 400;
/// The nodes need a moment to agree on a slot before it may migrate again.
const MIN_TIME_AWAY_MS: u64 = 100;

/// Clients that do not repeat what waits. Some are stopped until their inbox has ended.
pub fn nothing_repeated(run: &mut ScenarioRun) -> Vec<History> {
    // A call of GRANTS may block before that, for half as long as an inbox lives.
    let longest_ms = crowd::LONGEST_TTL_MS * 3 / 2;
    let stopped_ms = longest_ms + LEASE_MS..=longest_ms + 2 * LEASE_MS;
    mistaken(run, Mistake::NothingRepeated, stopped_ms)
}

/// Clients that take the lease of an answer to begin when they read it. Some are stopped for less than a lease.
pub fn whole_lease(run: &mut ScenarioRun) -> Vec<History> {
    mistaken(run, Mistake::WholeLease, LEASE_MS / 4..=LEASE_MS)
}

fn mistaken(run: &mut ScenarioRun, mistake: Mistake, stopped_ms: RangeInclusive<u64>) -> Vec<History> {
    let mut server = Server::start();
    let recorder = Recorder::default();
    let term = ServerTerm {
        port: server.port(),
        term: 0,
    };
    let mut crowd = Crowd::start(run, vec![term], lock_names("lock"), LEASE_MS, mistake, &recorder);
    for _ in 0..run.count {
        run.pause(20..=LEASE_MS);
        crowd.stop_one(run, stopped_ms.clone());
    }
    crowd.finish(&Route::to(server.port(), 0));
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// One server, which is stopped, pauses its clients, and is killed and restarted without losing anything.
pub fn one_server(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, |server, _, recorder| {
        recorder.event("kill -9 and restart of the server");
        server.kill();
    })
}

/// The same, but its power fails: all that was acknowledged was synced before.
pub fn power_failures(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, restart::lose_power)
}

fn restarts(run: &mut ScenarioRun, kill: fn(&mut Server, &Power, &Recorder)) -> Vec<History> {
    let power = Power::new();
    let mut server = Server::with_environment("appendonly yes\nappendfsync always", power.environment());
    let recorder = Recorder::default();
    let term = |server: &Server, term| ServerTerm {
        port: server.port(),
        term,
    };
    let mut crowd = Crowd::start(
        run,
        vec![term(&server, 0)],
        lock_names("lock"),
        LEASE_MS,
        Mistake::None,
        &recorder,
    );
    for restarts in 1..=run.count {
        run.pause(20..=LEASE_MS / 2);
        crowd.one_fault(run);
        match run.rng.u8(..6) {
            0 => {
                kill(&mut server, &power, &recorder);
                crowd.close_networks();
                server.start_again();
                crowd.connect_to(vec![term(&server, restarts)]);
            }
            1 => disturb(run, &server, &recorder),
            _ => {}
        }
    }
    let _ = server.client().call("CLIENT UNPAUSE");
    crowd.finish(&Route::to(server.port(), run.count + 1));
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

fn disturb(run: &mut ScenarioRun, server: &Server, recorder: &Recorder) {
    let mut admin: Client = server.client();
    match run.rng.u8(..5) {
        0 => {
            recorder.event("SIGSTOP of the server for a moment");
            server.stop();
            run.pause(1..=LEASE_MS * 2);
            server.resume();
        }
        1 => {
            let mode = if run.rng.bool() { "ALL" } else { "WRITE" };
            let ms = run.rng.u64(1..=LEASE_MS);
            recorder.event(format!("CLIENT PAUSE {ms} {mode}"));
            admin.ok(&format!("CLIENT PAUSE {ms} {mode}"));
            thread::sleep(Duration::from_millis(ms));
        }
        2 => {
            recorder.event("CLIENT KILL of all");
            admin.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
        }
        3 => with_any_client(run, &mut admin, "CLIENT KILL ID", "", recorder),
        _ => {
            let option = if run.rng.bool() { "TIMEOUT" } else { "ERROR" };
            with_any_client(run, &mut admin, "CLIENT UNBLOCK", option, recorder);
        }
    }
}

/// The primary is killed with unreplicated writes, with a grace period of the longest lease.
pub fn failovers_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    failovers(run, &format!("dlock.failover-grace-ms {LEASE_MS}"))
}

/// Without a grace period, but grants are told only when all replicas have them.
pub fn failovers_with_synchronous_grants(run: &mut ScenarioRun) -> Vec<History> {
    failovers(run, &synchronous(failover::SERVERS - 1))
}

/// Without either.
pub fn failovers_without_grace(run: &mut ScenarioRun) -> Vec<History> {
    failovers(run, "")
}

fn failovers(run: &mut ScenarioRun, config: &str) -> Vec<History> {
    let mut group = ReplicationGroup::start(failover::SERVERS, config);
    let recorder = group.recorder.clone();
    let mut crowd = Crowd::start(
        run,
        vec![group.primary_term()],
        lock_names("lock"),
        LEASE_MS,
        Mistake::None,
        &recorder,
    );
    for _ in 0..run.count {
        for _ in 0..run.rng.u8(1..=3) {
            run.pause(20..=LEASE_MS);
            crowd.one_fault(run);
        }
        let new = failover::kill_primary(run, &mut group);
        crowd.close_networks();
        let dead = group.promote(new);
        crowd.connect_to(vec![group.primary_term()]);
        group.restart(dead);
        group.resync();
    }
    crowd.finish(&group.route);
    vec![group.finish()]
}

/// Planned failovers with FAILOVER: the old primary goes on as a replica.
pub fn planned_failovers(run: &mut ScenarioRun) -> Vec<History> {
    let mut group = ReplicationGroup::start(planned::SERVERS, "appendonly yes\nappendfsync no");
    let recorder = group.recorder.clone();
    let mut crowd = Crowd::start(
        run,
        vec![group.primary_term()],
        lock_names("lock"),
        LEASE_MS,
        Mistake::None,
        &recorder,
    );
    for _ in 0..run.count {
        run.pause(LEASE_MS / 2..=LEASE_MS * 2);
        crowd.one_fault(run);
        planned::planned_failover(&mut group);
        crowd.connect_to(vec![group.primary_term()]);
    }
    crowd.finish(&group.route);
    vec![group.finish()]
}

/// Slots migrate back and forth between two nodes, with holders and waiters.
pub fn resharding(run: &mut ScenarioRun) -> Vec<History> {
    let mut cluster = Cluster::start(2);
    let recorder = Recorder::default();
    let nodes: Vec<ServerTerm> = cluster.nodes.iter().map(initial_term).collect();
    let locks = lock_names_by_slot();
    let mut crowd = Crowd::start(
        run,
        nodes.clone(),
        locks.concat(),
        LEASE_MS,
        Mistake::None,
        &recorder,
    );
    for _ in 0..run.count {
        run.pause(MIN_TIME_AWAY_MS..=LEASE_MS);
        crowd.one_fault(run);
        let mut keys = locks[run.rng.usize(..SLOTS)].clone();
        run.rng.shuffle(&mut keys);
        move_slot(run, &cluster, &keys, &recorder);
    }
    crowd.finish(&Route::to_cluster(nodes));
    for node in &mut cluster.nodes {
        servers::record_final_state(node, &recorder);
    }
    vec![recorder.history()]
}

/// Slots migrate atomically (Valkey 9).
pub fn slot_migrations(run: &mut ScenarioRun) -> Vec<History> {
    let Some(mut nodes) = slot_migration::Nodes::start(false) else {
        return Vec::new();
    };
    let recorder = nodes.recorder.clone();
    let locks = lock_names_by_slot();
    let mut crowd = Crowd::start(
        run,
        nodes.terms(),
        locks.concat(),
        LEASE_MS,
        Mistake::None,
        &recorder,
    );
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS);
        crowd.one_fault(run);
        let slot = run.rng.usize(..SLOTS);
        nodes.migrate(run, &locks[slot][0]);
    }
    crowd.finish(&nodes.route);
    nodes.finish()
}

fn lock_names(prefix: &str) -> Vec<String> {
    (0..LOCKS).map(|n| format!("{prefix}{n}")).collect()
}

fn lock_names_by_slot() -> Vec<Vec<String>> {
    let slots = (0..SLOTS).map(|slot| {
        let names = (0..LOCKS / SLOTS).map(|n| format!("{{slot{slot}}}lock{n}"));
        names.collect()
    });
    slots.collect()
}
