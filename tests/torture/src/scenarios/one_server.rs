//! One healthy server with faulty clients.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Client, Server};

use super::ScenarioRun;
use crate::clients::{Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 400;

/// Clients disconnect, pause, and are killed, unblocked and paused by the server; the server is stopped for a while.
pub fn clients(run: &mut ScenarioRun) -> Vec<History> {
    let mut server = Server::with("appendonly yes\nappendfsync no");
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 1);
    let pool = run.start_clients(WORKERS, &route, &recorder, &Workload::mixed(LEASE_MS));
    for _ in 0..run.count {
        run.pause(5..=60);
        match run.rng.u8(..4) {
            0 => {
                recorder.event("a client disconnects");
                pool.any(&mut run.rng).cutter.cut();
            }
            1 => {
                let client = pool.any(&mut run.rng);
                recorder.event("a client pauses, possibly past its lease");
                client.gate.close();
                run.pause(0..=LEASE_MS * 2);
                recorder.event("the client resumes");
                client.gate.open();
            }
            _ => disturb(run, &server, &recorder),
        }
    }
    server.client().ok("CLIENT UNPAUSE");
    pool.finish();
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// The server is stopped, or pauses, kills or unblocks clients.
pub(super) fn disturb(run: &mut ScenarioRun, server: &Server, recorder: &Recorder) {
    let mut admin = server.client();
    match run.rng.u8(..6) {
        0 => {
            recorder.event("SIGSTOP of the server");
            server.stop();
            run.pause(1..=LEASE_MS * 2);
            recorder.event("SIGCONT of the server");
            server.resume();
        }
        1 => {
            let mode = if run.rng.bool() { "ALL" } else { "WRITE" };
            let ms = run.rng.u64(1..=LEASE_MS);
            recorder.event(format!("CLIENT PAUSE {ms} {mode}"));
            admin.ok(&format!("CLIENT PAUSE {ms} {mode}"));
            // The admin connection is paused too.
            thread::sleep(Duration::from_millis(ms));
        }
        2 => {
            recorder.event("CLIENT KILL of all");
            admin.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
        }
        3 => with_any_client(run, &mut admin, "CLIENT KILL ID", "", recorder),
        4 => with_any_client(run, &mut admin, "CLIENT UNBLOCK", "TIMEOUT", recorder),
        _ => with_any_client(run, &mut admin, "CLIENT UNBLOCK", "ERROR", recorder),
    }
}

/// Runs a CLIENT command on a random client.
fn with_any_client(
    run: &mut ScenarioRun,
    admin: &mut Client,
    command: &str,
    option: &str,
    recorder: &Recorder,
) {
    let own: u64 = admin.ask("CLIENT ID");
    let list: String = admin.ask("CLIENT LIST");
    let ids = list.lines().filter_map(|line| line.strip_prefix("id="));
    let ids = ids.filter_map(|line| line.split_whitespace().next());
    let ids = ids.filter_map(|id| id.parse().ok());
    let ids: Vec<u64> = ids.filter(|id| *id != own).collect();
    let Some(id) = run.rng.choice(ids) else { return };
    recorder.event(format!("{command} {id} {option}"));
    // The client may have disconnected.
    let _ = admin.call(&format!("{command} {id} {option}"));
}
