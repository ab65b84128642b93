//! A very long queue: whether the ten thousandth waiter costs more than the first.

use std::path::Path;
use std::time::Instant;

use crate::resp::{Connection, Reply, encode};
use crate::results::spread::{Spread, ms, spread, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;
use crate::{Result, machine};

const KEY: &str = "lock";
const LEASE_MS: &str = "30000";

const WAITERS: usize = 10_000;
/// Those at the front of the queue are compared with as many at its end.
const EDGE: usize = 1_000;
/// Open files of a server or of this program beside the waiters' connections, generously.
const OTHER_FILES: usize = 200;

/// An owner on a connection of its own, with commands that are bytes already.
struct Party {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Party {
    fn new(connection: Connection, owner: &str) -> Self {
        Self {
            connection,
            acquire: bytes(&["DLOCK.ACQUIRE", KEY, owner, LEASE_MS, "BLOCK", "0"]),
            release: bytes(&["DLOCK.RELEASE", KEY, owner]),
        }
    }

    /// Returns the fence.
    fn granted(&mut self) -> Result<i64> {
        match self.connection.receive()? {
            Reply::Array(numbers) => match numbers[..] {
                [Reply::Integer(fence), Reply::Integer(1), ..] => Ok(fence),
                _ => Err(format!("not a first hold: {numbers:?}").into()),
            },
            reply => Err(format!("not a grant: {reply:?}").into()),
        }
    }
}

fn bytes(command: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(command.iter().copied(), &mut bytes);
    bytes
}

/// Of one of the first and of one of the last in the queue, in microseconds.
struct Edges {
    first: f64,
    last: f64,
}

/// What one round showed of a long queue.
struct LongQueue {
    /// Until the last waiter has its reply, in milliseconds.
    served: f64,
    hand_over: Edges,
    enqueue: Edges,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let files = machine::allow_open_files((WAITERS + OTHER_FILES) as u64)?;
    let waiters = WAITERS.min(
        usize::try_from(files)
            .unwrap_or(WAITERS)
            .saturating_sub(OTHER_FILES),
    );
    if waiters < 2 * EDGE {
        return Err(format!("only {files} open files are allowed (ulimit -n)").into());
    }
    let samples = (0..bench.rounds(3, 1))
        .map(|_| round(&bench.module, waiters))
        .collect::<Result<Vec<_>>>()?;

    let served = spread(&samples, |sample| sample.served);
    summary.add(Figure::new("all served", served).ms().at_most(2_000.0));
    let ratio = spread(&samples, |sample| sample.hand_over.first / sample.hand_over.last);
    summary.add(Figure::new("hand-over, first 1000 / last 1000", ratio).at_most(1.25));
    let figure = |name, of: fn(&LongQueue) -> f64| Figure::new(name, spread(&samples, of)).unit("us");
    summary.add(figure("hand-over, one of the first 1000", |sample| {
        sample.hand_over.first
    }));
    summary.add(figure("hand-over, one of the last 1000", |sample| {
        sample.hand_over.last
    }));
    summary.add(figure("enqueue + PING, one of the first 1000", |sample| {
        sample.enqueue.first
    }));
    summary.add(figure("enqueue + PING, one of the last 1000", |sample| {
        sample.enqueue.last
    }));
    summary.note(format!(
        "{waiters} waiters for one lock; one client releases for each holder in turn"
    ));
    if waiters < WAITERS {
        summary.note(format!(
            "FEWER than the {WAITERS} that the target means: {files} open files are allowed (ulimit -n)"
        ));
    }
    Ok(())
}

fn round(module: &Path, waiters: usize) -> Result<LongQueue> {
    let server = Server::start_with(module, &["--maxclients", "20000"])?;
    let control = &mut server.connect()?;
    let mut parties = (0..=waiters)
        .map(|number| {
            let mut connection = server.connect_small()?;
            // An error if the server has no room for it.
            connection.call(&["PING"])?;
            Ok(Party::new(connection, &owner(number)))
        })
        .collect::<Result<Vec<_>>>()?;
    let releases: Vec<_> = parties.iter().map(|party| party.release.clone()).collect();
    let [holder, queue @ ..] = &mut parties[..] else {
        return Err("nobody there".into());
    };
    holder.connection.send(&holder.acquire)?;
    let mut fence = holder.granted()?;

    let mut enqueues = Vec::new();
    for waiter in &mut *queue {
        let start = Instant::now();
        waiter.connection.send(&waiter.acquire)?;
        // The server answers this once it has read that: the queue has the order of the names.
        control.call(&["PING"])?;
        enqueues.push(us(start.elapsed()));
    }
    let waiting = control.info_number("dlock", "dlock_waiters")?;
    if waiting != waiters as f64 {
        return Err(format!("{waiting} waiters in place of {waiters}").into());
    }

    let mut hand_overs = Vec::new();
    let start = Instant::now();
    for release in &releases[..waiters] {
        let start = Instant::now();
        control.send(release)?;
        match control.receive()? {
            Reply::Integer(0) => {}
            reply => return Err(format!("not given up: {reply:?}").into()),
        }
        hand_overs.push(us(start.elapsed()));
    }
    let [earlier @ .., last] = queue else {
        return Err("nobody waited".into());
    };
    let last = last.granted()?;
    let served = ms(start.elapsed());
    for granted in earlier.iter_mut().map(Party::granted).chain([Ok(last)]) {
        let granted = granted?;
        if granted <= fence {
            return Err("the fences do not have the order of the queue".into());
        }
        fence = granted;
    }
    Ok(LongQueue {
        served,
        hand_over: Edges::of(&hand_overs),
        enqueue: Edges::of(&enqueues),
    })
}

fn owner(number: usize) -> String {
    format!("owner-{number:06}")
}

impl Edges {
    fn of(times: &[f64]) -> Self {
        let median = |times: &[f64]| Spread::of(times.iter().copied()).median;
        Self {
            first: median(&times[..EDGE]),
            last: median(&times[times.len() - EDGE..]),
        }
    }
}
