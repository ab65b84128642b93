//! A server that is killed by `kill -9` and started again.

use dlock_testkit::Server;

use super::Job;
use crate::clients::{Crew, Habits, Route};
use crate::history::{History, Journal};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;

/// Each answer was on disk before: nothing may be lost.
pub fn logged_always(job: &mut Job) -> Vec<History> {
    restarts(job, "appendonly yes\nappendfsync always".into())
}

/// The log may lack its tail, so a grace covers it.
pub fn logged_sometimes_with_grace(job: &mut Job) -> Vec<History> {
    let policy = if job.rng.bool() { "everysec" } else { "no" };
    restarts(
        job,
        format!("appendonly yes\nappendfsync {policy}\ndlock.startup-grace-ms {LEASE_MS}"),
    )
}

/// All is lost, so a grace covers it.
pub fn unlogged_with_grace(job: &mut Job) -> Vec<History> {
    restarts(job, format!("dlock.startup-grace-ms {LEASE_MS}"))
}

/// All is lost, and nothing covers it.
pub fn unlogged(job: &mut Job) -> Vec<History> {
    restarts(job, String::new())
}

fn restarts(job: &mut Job, config: String) -> Vec<History> {
    let mut server = Server::with(&config);
    let journal = Journal::default();
    let route = Route::to(server.port(), 0);
    let habits = Habits {
        keeps_name: true,
        ..Habits::mixed(LEASE_MS)
    };
    let crew = Crew::hire(WORKERS, "w", &route, &journal, &habits, &mut job.rng);
    for term in 1..=job.count {
        job.pause(20..=LEASE_MS * 2);
        journal.event("kill -9 of the server, and a start");
        server.kill();
        // Before anybody can reach the new process. It nearly always gets the port of the old one.
        route.set(server.port(), term);
        server.start_again();
        route.set(server.port(), term);
        journal.event("the server is back");
    }
    crew.dismiss();
    servers::settle(&mut server, &journal);
    vec![journal.history()]
}
