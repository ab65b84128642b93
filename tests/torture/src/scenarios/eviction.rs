//! A server at its memory limit that evicts keys.

use dlock_testkit::{Client, start};

use super::ScenarioRun;
use crate::clients::{Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;
const POLICIES: [&str; 4] = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"];
/// Size of the values that fill the memory.
const FILLING_BYTES: usize = 10_000;
/// Memory limit above the usage of an empty server.
const ROOM_BYTES: u64 = 2_000_000;
const KEYS_A_ROUND: usize = 50;

/// Fills the memory with keys with a TTL, under each policy that evicts only such keys.
pub fn pressure(run: &mut ScenarioRun) -> Vec<History> {
    let (mut server, mut admin) = start();
    let used: u64 = admin.server_number("memory", "used_memory");
    admin.config_set("maxmemory-policy", POLICIES[0]);
    admin.config_set("maxmemory", &(used + ROOM_BYTES).to_string());
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 1);
    let pool = run.start_clients(WORKERS, &route, &recorder, &Workload::mixed(LEASE_MS));
    for round in 0..run.count {
        let policy = POLICIES[round as usize % POLICIES.len()];
        let evicted = fill_memory(run, &mut admin, policy);
        recorder.event(format!("{policy}: {evicted} keys evicted so far"));
    }
    pool.finish();
    // A remaining key would look like a lock that was not released.
    admin.config_set("maxmemory", "0");
    for key in admin.ask::<Vec<String>>("KEYS filling:*") {
        admin.ask::<i64>(&format!("DEL {key}"));
    }
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// Writes until the server has evicted something.
fn fill_memory(run: &mut ScenarioRun, admin: &mut Client, policy: &str) -> u64 {
    admin.config_set("maxmemory-policy", policy);
    let value = "x".repeat(FILLING_BYTES);
    let before = evicted(admin);
    while evicted(admin) == before {
        for _ in 0..KEYS_A_ROUND {
            let key = format!("filling:{}", run.rng.u32(..));
            // Rejected while nothing can be evicted.
            let _ = admin.call(&format!("SET {key} {value} EX 1000"));
        }
        run.pause(1..=20);
    }
    evicted(admin)
}

fn evicted(admin: &mut Client) -> u64 {
    admin.server_number("stats", "evicted_keys")
}
