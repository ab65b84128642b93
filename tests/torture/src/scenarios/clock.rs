//! A wall clock that jumps by hours, forward and back, while locks are held.

use dlock_testkit::{Client, Server};

use super::Job;
use crate::clients::{Crew, Habits, Route};
use crate::faults::WallClock;
use crate::history::{History, Journal};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 300;
const HOUR_S: i64 = 3_600;
/// A key that the wall clock ends: it shows that the clock does jump.
const MARKED_S: i64 = 1_000;

/// One server whose clock jumps; now and then it is killed and started again, with the clock as it is.
pub fn jumps(job: &mut Job) -> Vec<History> {
    let clock = WallClock::new();
    let config = "appendonly yes\nappendfsync always";
    let mut server = Server::with_environment(config, clock.environment());
    expect_that_it_jumps(&clock, &mut server.client());
    let journal = Journal::default();
    let route = Route::to(server.port(), 0);
    let habits = Habits {
        keeps_name: true,
        ..Habits::mixed(LEASE_MS)
    };
    let crew = Crew::hire(WORKERS, "w", &route, &journal, &habits, &mut job.rng);
    for term in 1..=job.count {
        job.pause(20..=LEASE_MS);
        let hours = job.rng.i64(-5..=5);
        journal.event(format!("the wall clock is {hours} h off"));
        clock.set(hours * HOUR_S);
        if job.rng.u8(..5) == 0 {
            journal.event("kill -9 of the server, and a start");
            server.kill();
            route.set(server.port(), term);
            server.start_again();
            route.set(server.port(), term);
        }
    }
    crew.dismiss();
    servers::settle(&mut server, &journal);
    vec![journal.history()]
}

/// A scenario in which nothing happens would hold too.
fn expect_that_it_jumps(clock: &WallClock, client: &mut Client) {
    client.ok(&format!("SET marked value EX {MARKED_S}"));
    clock.set(MARKED_S + 1);
    assert!(!client.exists("marked"), "the clock of the server does not jump");
    clock.set(0);
}
