//! From the release of a lock until its next waiter has it: compared with a round trip and with other messages between
//! clients on this machine, and with other implementations.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::cores::PinnedCores;
use crate::implementations::etcd::Etcd;
use crate::implementations::{self, Client, ClientConfig, ClientKind};
use crate::resp::{Connection, Reply, command};
use crate::results::DLOCK;
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::stats::{Stats, ms, stats_of, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;
use crate::workloads::lock_owner::{LockOwner, fence_of};

const KEY: &str = "lock";
const LEASE_MS: u64 = 30_000;

/// An idle time before each measurement: sleeping threads have to be woken up.
struct Idle {
    us: u64,
    /// Per round.
    hand_overs: usize,
}

const IDLES: [Idle; 5] = [
    Idle {
        us: 0,
        hand_overs: 1_000,
    },
    Idle {
        us: 200,
        hand_overs: 600,
    },
    Idle {
        us: 1_000,
        hand_overs: 300,
    },
    Idle {
        us: 2_000,
        hand_overs: 200,
    },
    Idle {
        us: 10_000,
        hand_overs: 60,
    },
];

/// Where the client and the server run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cores {
    /// On a core each, like two machines.
    Pinned,
    /// Wherever the scheduler puts them.
    Unpinned,
}

const PING: &str = "PING";
const BLPOP: &str = "RPUSH to BLPOP";
const PUBLISH: &str = "PUBLISH to SUBSCRIBE";

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
    let name = format!("{} ms", idle.us as f64 / 1e3);
    bench.progress.step("hand-over", &format!("after {name} idle"));
    let rounds = match cores {
        Cores::Pinned => bench.rounds(5, 1),
        Cores::Unpinned => bench.rounds(3, 1),
    };
    let rounds = (0..rounds)
        .map(|_| round(&Server::start()?, idle, cores))
        .collect::<Result<Vec<_>>>()?;
    Ok(add_relative_to_ping(&rounds, &name, cores, summary).into())
}

/// Medians of one round, in microseconds.
struct Medians {
    lock: f64,
    /// The least that a reply to a blocked client can cost: RPUSH to a client in BLPOP.
    item: f64,
    /// The least that any message between clients can cost: PUBLISH blocks no client and stores nothing.
    message: f64,
    ping: f64,
}

fn add_relative_to_ping(rounds: &[Medians], idle: &str, cores: Cores, summary: &mut Summary) -> [Bar; 3] {
    let case = match cores {
        Cores::Pinned => format!("after {idle} idle, client and server on a core each"),
        Cores::Unpinned => format!("after {idle} idle, not pinned to cores"),
    };
    let figure = |metric, value| Figure::new(metric, value).case(&case);
    let time = |value: fn(&Medians) -> f64| figure("p50", stats_of(rounds, value)).unit("us");
    summary.add(time(|round| round.lock));
    summary.add(time(|round| round.item).of(BLPOP));
    summary.add(time(|round| round.message).of(PUBLISH));
    summary.add(time(|round| round.ping).of(PING));
    let lock = stats_of(rounds, |round| round.lock / round.ping);
    let item = stats_of(rounds, |round| round.item / round.ping);
    let message = stats_of(rounds, |round| round.message / round.ping);
    let hand_over = figure("hand-over / PING", lock);
    summary.add(match cores {
        Cores::Pinned => hand_over.at_most(1.20),
        Cores::Unpinned => hand_over,
    });
    summary.add(figure("hand-over / PING", item).of(BLPOP));
    summary.add(figure("hand-over / PING", message).of(PUBLISH));
    [(DLOCK, lock), (BLPOP, item), (PUBLISH, message)].map(|(name, value)| Bar {
        name: format!("{name}, {idle}"),
        value,
    })
}

/// Two owners hand a lock, then an item, then a message back and forth. One thread reads all replies in the same way.
fn round(server: &Server, idle: &Idle, cores: Cores) -> Result<Medians> {
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
    let (pop, push) = (
        command(&["BLPOP", "list", "0"]),
        command(&["RPUSH", "list", "item"]),
    );
    let popped = Reply::Array(["list", "item"].map(|text| Reply::Bulk(text.into())).into());
    let mut subscriber = server.connect()?;
    subscriber.call(&["SUBSCRIBE", "news"])?;
    let publish = command(&["PUBLISH", "news", "item"]);
    let published = Reply::Array(
        ["message", "news", "item"]
            .map(|text| Reply::Bulk(text.into()))
            .into(),
    );
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
        let (took, reply) = timed_after_idle(
            idle_time,
            control,
            &mut holder.connection,
            &holder.release,
            waiter,
        )?;
        let granted = fence_of(&reply)?;
        expect(&holder.connection.receive()?, &Reply::Integer(0))?;
        locks.push(us(took));
        if granted <= fence {
            return Err("the fence did not increase".into());
        }
        fence = granted;
        std::mem::swap(&mut holder, &mut other);
    }
    Ok(Medians {
        lock: Stats::of(locks).median,
        item: Stats::of(items).median,
        message: Stats::of(messages).median,
        ping: Stats::of(pings).median,
    })
}

/// After the idle time, from sending a command until its reply is read, or the reply that a waiter gets because of it.
fn timed_after_idle(
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

/// Random, so that no polling interval can synchronise with it, and long enough that every waiter is queued: etcd checks
/// a new waiter only every 100 ms.
const HELD_MS: std::ops::Range<u64> = 105..130;
const COMPARISON_CASE: &str = "two clients, each with its own retry policy";

fn compare_implementations(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start()?;
    let other_servers = implementations::start_other_servers()?;
    let implementations = implementations::client_kinds(&server, etcd.is_some())?;
    let (count, hand_overs) = (bench.rounds(3, 1), bench.rounds(9, 5));
    let mut medians: Vec<Vec<f64>> = implementations.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        for turn in 0..implementations.len() {
            let index = (round + turn) % implementations.len();
            bench.progress.step("hand-over", implementations[index].name);
            let times = hand_over_times(
                &server,
                &other_servers,
                etcd.as_ref(),
                implementations[index],
                round,
                hand_overs,
            )?;
            medians[index].push(Stats::of(times).median);
        }
    }
    let figure = |index: usize| {
        let value = Stats::of(medians[index].iter().copied());
        Figure::new("hand-over, p50", value)
            .of(implementations[index].name)
            .ms()
            .case(COMPARISON_CASE)
    };
    let mut bars = Vec::new();
    for (index, implementation) in implementations.iter().enumerate() {
        let pairs = medians[0].iter().zip(&medians[index]);
        let ratio = Stats::of(pairs.map(|(dlock, other)| dlock / other));
        summary.add(if index == 0 {
            figure(0)
        } else {
            figure(index).ratio(ratio)
        });
        bars.push(Bar {
            name: implementation.name.into(),
            value: Stats::of(medians[index].iter().copied()),
        });
    }
    summary.plot(Plot {
        file: "hand-over",
        title: "From a release until the next client has the lock".into(),
        about: format!("two clients, {hand_overs} hand-overs per round, medians of {count} rounds; each with its own retry policy"),
        shape: Shape::Bars { unit: "ms", bars },
    });
    if etcd.is_some() {
        summary.note(
            "etcd checks a new waiter only every 100 ms: a lock held for less time is handed over later",
        );
    }
    for note in implementations::skipped(&mut server.connect()?, etcd.is_some())? {
        summary.note(note);
    }
    Ok(())
}

/// In milliseconds.
fn hand_over_times(
    server: &Server,
    other_servers: &[Server],
    etcd: Option<&Etcd>,
    implementation: ClientKind,
    round: usize,
    hand_overs: usize,
) -> Result<Vec<f64>> {
    let key = format!("hand-over:{}:{round}", implementation.name);
    let open = |number| {
        (implementation.open)(&ClientConfig {
            server,
            other_servers,
            etcd,
            key: &key,
            number,
            lease_ms: LEASE_MS,
        })
    };
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
