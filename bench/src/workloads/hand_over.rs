//! From the release of a lock until its next waiter has it: compared with a round trip and with other messages between
//! clients on this machine, and with other implementations.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cores::PinnedCores;
use crate::error::Result;
use crate::implementations::dlock::fence_of;
use crate::implementations::{self, Client, ClientKind, Servers};
use crate::resp::{Connection, Reply, command};
use crate::results::DLOCK;
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::stats::{Stats, ms, stats_of, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;
use crate::workloads::lock_owner::LockOwner;

const KEY: &str = "lock";
const LEASE_MS: u64 = 30_000;

/// An idle time before each measurement: sleeping threads have to be woken up.
struct Idle {
    us: u64,
    /// Per round.
    hand_overs: usize,
}

const IDLES: [Idle; 5] = [
    Idle::new(0, 1_000),
    Idle::new(200, 600),
    Idle::new(1_000, 300),
    Idle::new(2_000, 200),
    Idle::new(10_000, 60),
];

impl Idle {
    const fn new(us: u64, hand_overs: usize) -> Self {
        Self { us, hand_overs }
    }
}

/// Where the client and the server run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cores {
    /// On a core each, like two machines.
    Pinned,
    /// Wherever the scheduler puts them.
    Unpinned,
}

/// What is measured. A round has the median of each, in microseconds.
const NAMES: [&str; 4] = [
    DLOCK,
    // The least that a reply to a blocked client can cost.
    "RPUSH to BLPOP",
    // The least that any message between clients can cost: PUBLISH blocks no client and stores nothing.
    "PUBLISH to SUBSCRIBE",
    "PING",
];
const BLPOP: usize = 1;
const PING: usize = 3;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let mut bars = Vec::new();
    for idle in IDLES {
        bars.extend(relative_to_ping(bench, &idle, Cores::Pinned, summary)?);
    }
    for idle in IDLES {
        relative_to_ping(bench, &idle, Cores::Unpinned, summary)?;
    }
    summary.plot(Plot {
        file: "hand-over-vs-ping",
        title: "A hand-over relative to a PING".into(),
        about: "from sending the release to reading the waiter's reply, divided by a PING after the same idle time; \
                client and server on a core each"
            .into(),
        shape: Shape::Bars { unit: "", bars },
    });
    compare_implementations(bench, summary)
}

/// Rounds with the same idle time, as figures and as bars of a plot.
fn relative_to_ping(bench: &Bench, idle: &Idle, cores: Cores, summary: &mut Summary) -> Result<Vec<Bar>> {
    let idle_time = format!("after {} ms idle", idle.us as f64 / 1e3);
    bench.progress.step("hand-over", &idle_time);
    let (count, case) = match cores {
        Cores::Pinned => (
            bench.rounds(5, 1),
            format!("{idle_time}, client and server on a core each"),
        ),
        Cores::Unpinned => (bench.rounds(3, 1), format!("{idle_time}, not pinned to cores")),
    };
    let rounds = (0..count).map(|_| round(&Server::start()?, idle, cores));
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    let mut bars = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let figure = |metric, value| Figure::new(metric, value).of(name).case(&case);
        summary.add(figure("p50", stats_of(&rounds, |round| round[index])).unit("us"));
        if index == PING {
            continue;
        }
        let value = stats_of(&rounds, |round| round[index] / round[PING]);
        summary.add(figure("hand-over / PING", value));
        bars.push(Bar {
            name: format!("{name}, {idle_time}"),
            value,
        });
    }
    // The server's own message to a blocked client, on the same machine at the same time.
    let to_blpop = stats_of(&rounds, |round| round[0] / round[BLPOP]);
    let to_blpop = Figure::new(format!("hand-over / {}", NAMES[BLPOP]), to_blpop)
        .of(DLOCK)
        .case(case);
    summary.add(match cores {
        Cores::Pinned => to_blpop.at_most(1.10),
        Cores::Unpinned => to_blpop,
    });
    Ok(bars)
}

/// Two owners hand a lock, then an item, then a message back and forth. One thread reads all replies in the same way.
fn round(server: &Server, idle: &Idle, cores: Cores) -> Result<[f64; 4]> {
    let _pinned = match cores {
        // With a single core, both share it.
        Cores::Pinned => PinnedCores::pin(server)?,
        Cores::Unpinned => None,
    };
    let idle_time = Duration::from_micros(idle.us);
    let mut holder = LockOwner::new(server.connect()?, KEY, "alice", LEASE_MS);
    let mut other = LockOwner::new(server.connect()?, KEY, "bob", LEASE_MS);
    let control = &mut server.connect()?;
    let (ping, pong) = (command(&["PING"]), Reply::Simple("PONG".into()));
    let pop = command(&["BLPOP", "list", "0"]);
    let push = command(&["RPUSH", "list", "item"]);
    let popped = bulks(&["list", "item"]);
    let mut subscriber = server.connect()?;
    subscriber.call(&["SUBSCRIBE", "news"])?;
    let publish = command(&["PUBLISH", "news", "item"]);
    let published = bulks(&["message", "news", "item"]);
    let (mut locks, mut items, mut messages, mut pings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    holder.connection.send(&holder.acquire)?;
    let mut fence = holder.granted()?;
    for _ in 0..idle.hand_overs {
        let (took, reply) = timed_after_idle(idle_time, control, &mut other.connection, &ping, None)?;
        expect(&reply, &pong)?;
        pings.push(us(took));

        other.connection.send(&pop)?;
        let waiter = Some(&mut other.connection);
        let (took, reply) = timed_after_idle(idle_time, control, &mut holder.connection, &push, waiter)?;
        expect(&reply, &popped)?;
        expect(&holder.connection.receive()?, &Reply::Integer(1))?;
        items.push(us(took));

        let waiter = Some(&mut subscriber);
        let (took, reply) = timed_after_idle(idle_time, control, &mut holder.connection, &publish, waiter)?;
        expect(&reply, &published)?;
        expect(&holder.connection.receive()?, &Reply::Integer(1))?;
        messages.push(us(took));

        other.connection.send(&other.acquire)?;
        let waiter = Some(&mut other.connection);
        let (sender, release) = (&mut holder.connection, &holder.release);
        let (took, reply) = timed_after_idle(idle_time, control, sender, release, waiter)?;
        let granted = fence_of(&reply)?;
        expect(&holder.connection.receive()?, &Reply::Integer(0))?;
        locks.push(us(took));
        if granted <= fence {
            return Err("the fence did not increase".into());
        }
        fence = granted;
        std::mem::swap(&mut holder, &mut other);
    }
    Ok([locks, items, messages, pings].map(|times| Stats::of(times).median))
}

/// After the idle time, from sending a command until its reply is read, or the reply that a waiter gets because of it.
pub fn timed_after_idle(
    idle: Duration,
    control: &mut Connection,
    sender: &mut Connection,
    command: &[u8],
    waiter: Option<&mut Connection>,
) -> Result<(Duration, Reply)> {
    // The server has read the request of the waiter before it replies to this.
    control.call(&["PING"])?;
    if !idle.is_zero() {
        thread::sleep(idle);
    }
    let start = Instant::now();
    sender.send(command)?;
    let reply = waiter.unwrap_or(sender).receive()?;
    Ok((start.elapsed(), reply))
}

fn expect(reply: &Reply, expected: &Reply) -> Result<()> {
    if reply == expected {
        Ok(())
    } else {
        Err(format!("{reply:?} instead of {expected:?}").into())
    }
}

fn bulks(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| Reply::Bulk((*text).into())).collect())
}

/// Random, so that no polling interval can synchronise with it, and long enough that every waiter is queued: etcd checks
/// a new waiter only every 100 ms.
const HELD_MS: std::ops::Range<u64> = 105..130;
const COMPARISON_CASE: &str = "two clients, each with its own retry policy";

fn compare_implementations(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let servers = Servers::start(true)?;
    let kinds = servers.client_kinds()?;
    let (count, hand_overs) = (bench.rounds(3, 1), bench.rounds(9, 5));
    let names = kinds.iter().map(|(name, _)| *name).collect();
    let medians = Comparison::in_turns(names, count, |round, index| {
        bench.progress.step("hand-over", kinds[index].0);
        Ok(Stats::of(hand_over_times(&servers, kinds[index], round, hand_overs)?).median)
    })?;
    medians.add(summary, COMPARISON_CASE, "hand-over, p50", "ms", |ms| *ms);
    summary.plot(Plot {
        file: "hand-over",
        title: "From a release until the next client has the lock".into(),
        about: format!("two clients, {hand_overs} hand-overs per round, medians of {count} rounds; each with its own retry policy"),
        shape: Shape::Bars { unit: "ms", bars: medians.bars(|ms| *ms) },
    });
    if servers.has_etcd() {
        summary.note(
            "etcd checks a new waiter only every 100 ms: a lock held for less time is handed over later",
        );
    }
    for note in implementations::skipped(&mut servers.server.connect()?, servers.has_etcd())? {
        summary.note(note);
    }
    Ok(())
}

/// In milliseconds.
fn hand_over_times(
    servers: &Servers,
    (name, open): ClientKind,
    round: usize,
    hand_overs: usize,
) -> Result<Vec<f64>> {
    let key = format!("hand-over:{name}:{round}");
    let open = |number| servers.open(open, &key, number, LEASE_MS);
    let (mut holder, waiter) = (open(0)?, open(1)?);
    thread::scope(|scope| {
        let (start, started) = mpsc::channel();
        let (report, reports) = mpsc::channel();
        let thread = scope
            .spawn(move || acquire_on_request(waiter, &started, &report).map_err(|error| error.to_string()));
        let mut times = Vec::new();
        for _ in 0..hand_overs {
            acquire(holder.as_mut())?;
            // Fails if the waiter has ended; its error is returned below.
            if start.send(()).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(fastrand::u64(HELD_MS)));
            let released = Instant::now();
            holder.release()?;
            let Ok(granted) = reports.recv() else { break };
            times.push(ms(Instant::saturating_duration_since(&granted, released)));
        }
        drop(start);
        thread.join().map_err(|_| "the waiter panicked")??;
        Ok(times)
    })
}

/// On each request, acquires and releases the lock, and reports when it was granted.
fn acquire_on_request(
    mut client: Box<dyn Client>,
    started: &mpsc::Receiver<()>,
    report: &mpsc::Sender<Instant>,
) -> Result<()> {
    while started.recv().is_ok() {
        acquire(client.as_mut())?;
        let granted = Instant::now();
        client.release()?;
        report.send(granted)?;
    }
    Ok(())
}

/// With a generous deadline.
fn acquire(client: &mut dyn Client) -> Result<()> {
    let deadline = Instant::now() + Duration::from_millis(LEASE_MS / 2);
    if client.acquire(deadline)? {
        Ok(())
    } else {
        Err("a free lock was not granted".into())
    }
}
