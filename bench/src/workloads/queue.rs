//! A queue of ten thousand blocked waiters: does the last one cost more than the first?

use std::time::Instant;

use super::Scale;
use super::lock_owner::LockOwner;
use crate::error::Result;
use crate::locks::LEASE;
use crate::machine::allow_open_files;
use crate::results::{DLOCK, Results};
use crate::server::Server;
use crate::stats::{Times, ms};

const WAITERS: usize = 10_000;
/// Open files other than the connections of waiters, an upper bound.
const OTHER_FILES: u64 = 200;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let waiters = scale.count(WAITERS);
    allow_open_files(waiters as u64 + OTHER_FILES)?;
    for round in 0..scale.rounds(3) {
        let (all_granted, first, last) = one_round(waiters)?;
        let mut row = results.round("none", DLOCK, round).clients(waiters);
        row.add("all granted", "ms", all_granted);
        row.add("hand-over, first tenth", "us", first.us(50.0)).add(
            "hand-over, last tenth",
            "us",
            last.us(50.0),
        );
    }
    Ok(())
}

/// One client releases on behalf of each holder, so that one hand-over follows the other.
fn one_round(waiters: usize) -> Result<(f64, Times, Times)> {
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    let owner = |number: usize| LockOwner::new(&server, "lock", &format!("owner-{number:06}"), LEASE);
    let mut owners = (0..=waiters).map(owner).collect::<Result<Vec<_>>>()?;
    for owner in &mut owners {
        owner.ask()?;
        // The server has read the request before it replies to this, so the queue is in the order of owners.
        control.call(&["PING"])?;
    }
    let [mut first, mut last] = [Times::new()?, Times::new()?];
    let start = Instant::now();
    for (number, owner) in owners.iter().enumerate().take(waiters) {
        let start = Instant::now();
        control.send(&owner.release)?;
        control.receive()?;
        if number < waiters / 10 {
            first.record(start.elapsed())?;
        } else if number >= waiters - waiters / 10 {
            last.record(start.elapsed())?;
        }
    }
    let last_fence = owners.last_mut().ok_or("no waiters")?.granted()?;
    let all_granted = ms(start.elapsed());
    let fences = owners[..waiters]
        .iter_mut()
        .map(LockOwner::granted)
        .collect::<Result<Vec<_>>>()?;
    if fences.iter().chain([&last_fence]).is_sorted() {
        Ok((all_granted, first, last))
    } else {
        Err("fences are not in the order of the queue".into())
    }
}
