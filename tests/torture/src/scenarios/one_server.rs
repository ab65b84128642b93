//! One server that lives, and clients that do not.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Client, Server};

use super::Job;
use crate::clients::{Crew, Habits, Route};
use crate::history::{History, Journal};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 400;

/// Clients die, stop, are killed, unblocked and paused; the server stops for a while.
pub fn clients(job: &mut Job) -> Vec<History> {
    let mut server = Server::with("appendonly yes\nappendfsync no");
    let journal = Journal::default();
    let route = Route::to(server.port(), 1);
    let crew = Crew::hire(
        WORKERS,
        "w",
        &route,
        &journal,
        &Habits::mixed(LEASE_MS),
        &mut job.rng,
    );
    let mut admin = server.client();
    for _ in 0..job.count {
        job.pause(5..=60);
        one_fault(job, &server, &mut admin, &crew, &journal);
    }
    admin.ok("CLIENT UNPAUSE");
    crew.dismiss();
    servers::settle(&mut server, &journal);
    vec![journal.history()]
}

fn one_fault(job: &mut Job, server: &Server, admin: &mut Client, crew: &Crew, journal: &Journal) {
    let member = crew.any(&mut job.rng);
    match job.rng.u8(..8) {
        0 => {
            journal.event("a client dies");
            member.line.cut();
        }
        1 => {
            journal.event("a client is stopped, for longer than its lease may last");
            member.gate.close();
            job.pause(0..=LEASE_MS * 2);
            journal.event("it goes on");
            member.gate.open();
        }
        2 => {
            journal.event("the server is stopped");
            servers::stop(server);
            job.pause(1..=LEASE_MS * 2);
            journal.event("the server goes on");
            servers::resume(server);
        }
        3 => {
            let mode = if job.rng.bool() { "ALL" } else { "WRITE" };
            let ms = job.rng.u64(1..=LEASE_MS);
            journal.event(format!("CLIENT PAUSE {ms} {mode}"));
            admin.ok(&format!("CLIENT PAUSE {ms} {mode}"));
            // Our own connection is paused with the others.
            thread::sleep(Duration::from_millis(ms));
        }
        4 => {
            journal.event("CLIENT KILL of all");
            admin.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
        }
        5 => with_any_client(job, admin, "CLIENT KILL ID", "", journal),
        6 => with_any_client(job, admin, "CLIENT UNBLOCK", "TIMEOUT", journal),
        _ => with_any_client(job, admin, "CLIENT UNBLOCK", "ERROR", journal),
    }
}

/// Does something to a client chosen by its number.
fn with_any_client(job: &mut Job, admin: &mut Client, command: &str, option: &str, journal: &Journal) {
    let own: u64 = admin.ask("CLIENT ID");
    let list: String = admin.ask("CLIENT LIST");
    let ids = list.lines().filter_map(|line| line.strip_prefix("id="));
    let ids = ids.filter_map(|line| line.split_whitespace().next());
    let ids: Vec<u64> = ids
        .filter_map(|id| id.parse().ok())
        .filter(|id| *id != own)
        .collect();
    let Some(id) = job.rng.choice(ids) else { return };
    journal.event(format!("{command} {id} {option}"));
    // It may have gone meanwhile.
    let _ = admin.call(&format!("{command} {id} {option}"));
}
