//! A queue of ten thousand waiters: does the last one cost more than the first?

use std::time::Instant;

use crate::environment;
use crate::error::Result;
use crate::resp::Reply;
use crate::results::stats::{Stats, ms, stats_of, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::lock_owner::LockOwner;

const KEY: &str = "lock";
const LEASE_MS: u64 = 30_000;

const WAITERS: usize = 10_000;
/// Compares the first and the last of the queue, this many each.
const EDGE: usize = 1_000;
/// Open files other than the connections of waiters, in the server or in this program; an upper bound.
const OTHER_FILES: usize = 200;

/// Medians over the first and the last of the queue, in microseconds.
struct Edges {
    first: f64,
    last: f64,
}

/// Results of one round.
struct LongQueue {
    /// Until the last waiter is granted, in milliseconds.
    all_granted: f64,
    hand_over: Edges,
    enqueue: Edges,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let files = environment::allow_open_files((WAITERS + OTHER_FILES) as u64)?;
    let waiters = WAITERS.min(usize::try_from(files)?.saturating_sub(OTHER_FILES));
    if waiters < 2 * EDGE {
        return Err(format!("only {files} open files are allowed, raise ulimit -n").into());
    }
    let samples = (0..bench.rounds(3, 1)).map(|_| round(waiters));
    let samples = samples.collect::<Result<Vec<_>>>()?;
    let all_granted = stats_of(&samples, |sample| sample.all_granted);
    summary.add(Figure::new("all granted", all_granted).ms().at_most(2_000.0));
    let ratio = stats_of(&samples, |sample| sample.hand_over.first / sample.hand_over.last);
    summary.add(Figure::new("hand-over, first 1000 / last 1000", ratio).at_most(1.25));
    let figure = |name, of: fn(&LongQueue) -> f64| Figure::new(name, stats_of(&samples, of)).unit("us");
    summary.add(figure("hand-over, first 1000", |sample| sample.hand_over.first));
    summary.add(figure("hand-over, last 1000", |sample| sample.hand_over.last));
    summary.add(figure("enqueue + PING, first 1000", |round| round.enqueue.first));
    summary.add(figure("enqueue + PING, last 1000", |sample| sample.enqueue.last));
    summary.note(format!(
        "{waiters} waiters for one lock; one client releases on behalf of each holder"
    ));
    if waiters < WAITERS {
        summary.note(format!(
            "the target applies to {WAITERS} waiters, but only {files} open files are allowed (ulimit -n)"
        ));
    }
    Ok(())
}

fn round(waiters: usize) -> Result<LongQueue> {
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    let mut parties = (0..=waiters)
        .map(|number| {
            let mut connection = server.connect_small()?;
            // Fails if the server rejects the connection.
            connection.call(&["PING"])?;
            Ok(LockOwner::new(
                connection,
                KEY,
                &format!("owner-{number:06}"),
                LEASE_MS,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let releases: Vec<_> = parties.iter().map(|party| party.release.clone()).collect();
    let [holder, queue @ ..] = &mut parties[..] else {
        return Err("no clients".into());
    };
    holder.connection.send(&holder.acquire)?;
    let mut fence = holder.granted()?;

    let mut enqueues = Vec::new();
    for waiter in &mut *queue {
        let start = Instant::now();
        waiter.connection.send(&waiter.acquire)?;
        // The server has read the request before it replies to this, so the queue is in order of names.
        control.call(&["PING"])?;
        enqueues.push(us(start.elapsed()));
    }
    let waiting = control.info_number("dlock", "dlock_waiters")?;
    if waiting != waiters as f64 {
        return Err(format!("{waiting} waiters instead of {waiters}").into());
    }

    let mut hand_overs = Vec::new();
    let start = Instant::now();
    for release in &releases[..waiters] {
        let start = Instant::now();
        control.send(release)?;
        match control.receive()? {
            Reply::Integer(0) => {}
            reply => return Err(format!("unexpected reply: {reply:?}").into()),
        }
        hand_overs.push(us(start.elapsed()));
    }
    let [earlier @ .., last] = queue else {
        return Err("no waiters".into());
    };
    let last = last.granted()?;
    let all_granted = ms(start.elapsed());
    for granted in earlier.iter_mut().map(LockOwner::granted).chain([Ok(last)]) {
        let granted = granted?;
        if granted <= fence {
            return Err("fences are not in queue order".into());
        }
        fence = granted;
    }
    Ok(LongQueue {
        all_granted,
        hand_over: Edges::of(&hand_overs),
        enqueue: Edges::of(&enqueues),
    })
}

impl Edges {
    fn of(times: &[f64]) -> Self {
        let median = |times: &[f64]| Stats::of(times.iter().copied()).median;
        Self {
            first: median(&times[..EDGE]),
            last: median(&times[times.len() - EDGE..]),
        }
    }
}
