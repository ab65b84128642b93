//! Replicas that start from old snapshots and continue with a partial resynchronization.

use dlock_testkit::{Client, Server, wait_for};

use super::ScenarioRun;
use crate::clients::{Route, Workload};
use crate::history::{History, Recorder, Restored};
use crate::servers;

const GROUPS: u32 = 2;
const WORKERS: usize = 5;
const LEASE_MS: u64 = 600;
/// Without a log, a replica and a backlog, changes are not encoded. A backlog without replicas is soon freed.
const CONFIG: &str = "repl-backlog-ttl 1\nrepl-diskless-sync-delay 1";

/// In each round a snapshot, more changes, a replica that starts from the snapshot, and a replica of that replica. All
/// must have the same locks. Sometimes the replica then takes over.
pub fn partial_resyncs(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(GROUPS, rounds)
}

fn rounds(run: &mut ScenarioRun) -> History {
    let mut primary = Server::with(CONFIG);
    // Late requests may still reach a server that has handed over.
    let mut retired: Option<Server> = None;
    let recorder = Recorder::default();
    let route = Route::to(primary.port(), 0);
    let pool = run.start_clients(WORKERS, &route, &recorder, &Workload::mixed(LEASE_MS));
    for term in 1..=run.count {
        // Sometimes long enough for the backlog to be gone.
        let at_least_ms = run.rng.choice([0, 5_000]).unwrap_or(0);
        run.pause(at_least_ms..=at_least_ms + 500);
        if run.rng.bool() {
            recorder.event("PSYNC of a replica that leaves at once");
            create_backlog(&primary);
        }
        run.pause(0..=400);
        save(run, &mut primary.client(), &recorder);
        // Still held when the servers are compared.
        primary.client().acquire(&format!("kept{term} harness 5000"));
        run.pause(0..=400);
        let mut replica = replica_on_snapshot(&primary, &primary);
        let mut chained = replica_on_snapshot(&primary, &replica);
        compare(&primary, [&replica, &chained], &recorder);
        // While it is a replica, the primary keeps its backlog.
        drop(retired.take());
        servers::check_no_crash(&mut chained, &recorder);
        servers::check_no_crash(&mut replica, &recorder);
        if run.rng.u8(..3) == 0 {
            recorder.event("FAILOVER");
            let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", replica.port());
            primary.client().ok(&failover);
            wait_for("the promotion", || replica.is_primary());
            route.set(replica.port(), term);
            retired = Some(std::mem::replace(&mut primary, replica));
        }
    }
    pool.finish();
    drop(retired);
    servers::record_final_state(&mut primary, &recorder);
    recorder.history()
}

/// The first PSYNC of a replica that takes its snapshot from a socket creates the backlog, before any fork.
fn create_backlog(primary: &Server) {
    let mut replica = primary.client();
    replica.ok("REPLCONF capa eof");
    replica.send("PSYNC ? -1");
    let mut observer = primary.client();
    wait_for("a backlog", || {
        observer.server_info("replication", "repl_backlog_active") == "1"
    });
}

/// Writes an RDB, with a fork or without. Another child may have to end first.
fn save(run: &mut ScenarioRun, client: &mut Client, recorder: &Recorder) {
    let command = if run.rng.bool() { "SAVE" } else { "BGSAVE" };
    recorder.event(command);
    wait_for("a snapshot", || client.call(command).is_ok());
    wait_for("the end of the snapshot", || {
        client.server_info("persistence", "rdb_bgsave_in_progress") == "0"
    });
}

/// Starts on the last snapshot of a server.
fn replica_on_snapshot(server: &Server, primary: &Server) -> Server {
    let lines = format!("{CONFIG}\nreplicaof 127.0.0.1 {}", primary.port());
    let replica = Server::on_copy_of(server.directory(), &lines);
    let replica = replica.unwrap_or_else(|log| panic!("the replica did not start:\n{log}"));
    replica.wait_until_linked();
    replica
}

/// Holds writes back until all servers are at the same offset, and records their locks.
fn compare(primary: &Server, replicas: [&Server; 2], recorder: &Recorder) {
    let mut client = primary.client();
    client.ok("CLIENT PAUSE 30000 WRITE");
    let expected = locks(&mut client);
    for (name, replica) in ["a replica", "its replica"].into_iter().zip(replicas) {
        let mut of_replica = replica.client();
        wait_for("the offset of the primary", || {
            let sent = client.server_info("replication", "master_repl_offset");
            of_replica.server_info("replication", "slave_repl_offset") == sent
        });
        recorder.lock().restored.push(Restored {
            after: format!("{name} that started from a snapshot"),
            expected: expected.clone(),
            found: locks(&mut of_replica),
        });
    }
    client.ok("CLIENT UNPAUSE");
}

/// All keys with owners, fences and holds, expired or not: DLOCK.INFO shows only what has not expired by now.
fn locks(client: &mut Client) -> String {
    let mut keys: Vec<String> = client.ask("KEYS *");
    keys.sort_unstable();
    let digest: String = client.ask("DEBUG DIGEST");
    format!("{} with digest {digest}", keys.join(" "))
}
