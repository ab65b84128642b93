//! From the release of a lock until somebody who waits for it has it: beside the least that a round trip and a
//! reply to a blocked client can cost here, and beside the contenders.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::contenders::etcd::Etcd;
use crate::contenders::{self, Client, Waiting, Wanted};
use crate::cores::Apart;
use crate::resp::{Connection, Reply, encode};
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::spread::{Spread, ms, spread, us};
use crate::results::table::{DLOCK, Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const KEY: &str = "lock";
const LEASE_MS: u64 = 30_000;

/// Nobody sends anything for so long before each measurement: what sleeps has to be woken.
struct Idle {
    us: u64,
    /// So often in one round.
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
    /// On a core each, as on two machines.
    Apart,
    /// Wherever the system puts them.
    Any,
}

const PING: &str = "PING";
const BLPOP: &str = "RPUSH to BLPOP";
const PUBLISH: &str = "PUBLISH to SUBSCRIBE";

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let mut bars = Vec::new();
    for idle in IDLES {
        bars.extend(beside_ping(bench, &idle, Cores::Apart, summary)?);
    }
    for idle in IDLES {
        beside_ping(bench, &idle, Cores::Any, summary)?;
    }
    summary.plot(Plot {
        file: "hand-over-beside-ping",
        title: "A hand-over beside a PING".into(),
        about: "release sent to the waiter's reply read, over a PING in the same run after the same silence; the \
                client and the server on a core each"
            .into(),
        shape: Shape::Bars { unit: "", bars },
    });
    beside_others(bench, summary)
}

/// Some rounds after the same silence, as figures and as bars of a plot.
fn beside_ping(bench: &Bench, idle: &Idle, cores: Cores, summary: &mut Summary) -> Result<Vec<Bar>> {
    let name = format!("{} ms", idle.us as f64 / 1e3);
    bench
        .progress
        .step("hand-over", &format!("after {name} of silence"));
    let rounds = match cores {
        Cores::Apart => bench.rounds(5, 1),
        Cores::Any => bench.rounds(3, 1),
    };
    let rounds = (0..rounds)
        .map(|_| round(&Server::start(&bench.module)?, idle, cores))
        .collect::<Result<Vec<_>>>()?;
    Ok(add_beside_ping(&rounds, &name, cores, summary).into())
}

/// Times in microseconds: medians of one round.
struct BesidePing {
    lock: f64,
    /// The least that a reply to a blocked client can cost: an item pushed for a client that waits by BLPOP.
    item: f64,
    /// The least that any message from one client to another can cost: nobody is blocked, nothing is kept.
    message: f64,
    ping: f64,
}

fn add_beside_ping(rounds: &[BesidePing], idle: &str, cores: Cores, summary: &mut Summary) -> [Bar; 3] {
    let case = match cores {
        Cores::Apart => format!("after {idle} of silence, client and server on a core each"),
        Cores::Any => format!("after {idle} of silence, on whichever core"),
    };
    let figure = |metric, value| Figure::new(metric, value).case(&case);
    let time = |of: fn(&BesidePing) -> f64| figure("p50", spread(rounds, of)).unit("us");
    summary.add(time(|round| round.lock));
    summary.add(time(|round| round.item).of(BLPOP));
    summary.add(time(|round| round.message).of(PUBLISH));
    summary.add(time(|round| round.ping).of(PING));
    let lock = spread(rounds, |round| round.lock / round.ping);
    let item = spread(rounds, |round| round.item / round.ping);
    let message = spread(rounds, |round| round.message / round.ping);
    let ours = figure("hand-over / PING", lock);
    summary.add(match cores {
        Cores::Apart => ours.at_most(1.20),
        Cores::Any => ours,
    });
    summary.add(figure("hand-over / PING", item).of(BLPOP));
    summary.add(figure("hand-over / PING", message).of(PUBLISH));
    [(DLOCK, lock), (BLPOP, item), (PUBLISH, message)].map(|(name, value)| Bar {
        name: format!("{name}, {idle}"),
        value,
    })
}

/// An owner on a connection of its own, with commands that are bytes already.
struct Party {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Party {
    fn new(connection: Connection, owner: &str) -> Self {
        let lease_ms = LEASE_MS.to_string();
        Self {
            connection,
            acquire: bytes(&["DLOCK.ACQUIRE", KEY, owner, &lease_ms, "BLOCK", "0"]),
            release: bytes(&["DLOCK.RELEASE", KEY, owner]),
        }
    }
}

/// Two owners hand a lock to and fro, and an item too. One thread reads every reply, in the same way.
fn round(server: &Server, idle: &Idle, cores: Cores) -> Result<BesidePing> {
    let _apart = match cores {
        // Where there is one core only, both share it.
        Cores::Apart => Apart::begin(server)?,
        Cores::Any => None,
    };
    let silence = Duration::from_micros(idle.us);
    let mut holder = Party::new(server.connect()?, "alice");
    let mut other = Party::new(server.connect()?, "bob");
    let control = &mut server.connect()?;
    let (ping, pong) = (bytes(&["PING"]), Reply::Simple("PONG".into()));
    let (pop, push) = (bytes(&["BLPOP", "list", "0"]), bytes(&["RPUSH", "list", "item"]));
    let popped = Reply::Array(["list", "item"].map(|text| Reply::Bulk(text.into())).into());
    let mut subscriber = server.connect()?;
    subscriber.call(&["SUBSCRIBE", "news"])?;
    let publish = bytes(&["PUBLISH", "news", "item"]);
    let published = Reply::Array(
        ["message", "news", "item"]
            .map(|text| Reply::Bulk(text.into()))
            .into(),
    );
    let (mut locks, mut items, mut messages, mut pings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    holder.connection.send(&holder.acquire)?;
    let mut fence = fence_of(&holder.connection.receive()?)?;
    for _ in 0..idle.hand_overs {
        let (took, reply) = after_silence(silence, control, &mut other.connection, &ping, None)?;
        expect(&reply, &pong)?;
        pings.push(us(took));

        other.connection.send(&pop)?;
        let waiter = Some(&mut other.connection);
        let (took, reply) = after_silence(silence, control, &mut holder.connection, &push, waiter)?;
        expect(&reply, &popped)?;
        expect(&holder.connection.receive()?, &Reply::Integer(1))?;
        items.push(us(took));

        let waiter = Some(&mut subscriber);
        let (took, reply) = after_silence(silence, control, &mut holder.connection, &publish, waiter)?;
        expect(&reply, &published)?;
        expect(&holder.connection.receive()?, &Reply::Integer(1))?;
        messages.push(us(took));

        other.connection.send(&other.acquire)?;
        let waiter = Some(&mut other.connection);
        let (took, reply) = after_silence(silence, control, &mut holder.connection, &holder.release, waiter)?;
        let granted = fence_of(&reply)?;
        expect(&holder.connection.receive()?, &Reply::Integer(0))?;
        locks.push(us(took));
        if granted <= fence {
            return Err("a later grant has no higher fence".into());
        }
        fence = granted;
        std::mem::swap(&mut holder, &mut other);
    }
    Ok(BesidePing {
        lock: Spread::of(locks).median,
        item: Spread::of(items).median,
        message: Spread::of(messages).median,
        ping: Spread::of(pings).median,
    })
}

/// After some silence, from just before a command is sent until a reply is read: that of the command, or that
/// which somebody else waits for.
fn after_silence(
    idle: Duration,
    control: &mut Connection,
    sender: &mut Connection,
    command: &[u8],
    waiter: Option<&mut Connection>,
) -> Result<(Duration, Reply)> {
    // The server answers this once it has read what the waiter has sent: from now on it waits.
    control.call(&["PING"])?;
    if !idle.is_zero() {
        thread::sleep(idle);
    }
    let start = Instant::now();
    sender.send(command)?;
    let reply = waiter.unwrap_or(sender).receive()?;
    Ok((start.elapsed(), reply))
}

/// Of a first hold.
fn fence_of(reply: &Reply) -> Result<i64> {
    match reply {
        Reply::Array(numbers) if matches!(numbers[..], [Reply::Integer(1..), Reply::Integer(1), ..]) => {
            if let [Reply::Integer(fence), ..] = numbers[..] {
                Ok(fence)
            } else {
                Err("no fence".into())
            }
        }
        reply => Err(format!("not a first hold: {reply:?}").into()),
    }
}

fn bytes(command: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(command.iter().copied(), &mut bytes);
    bytes
}

fn expect(reply: &Reply, expected: &Reply) -> Result<()> {
    if reply == expected {
        Ok(())
    } else {
        Err(format!("{reply:?} in place of {expected:?}").into())
    }
}

/// The holder keeps the lock for so long, at random: nobody's polling may fall into step with it. And so long
/// that everybody's waiting has fully begun: etcd looks after a new waiter only every 100 ms.
const HELD_MS: std::ops::Range<u64> = 105..130;
const OTHERS_CASE: &str = "by each contender's rule of waiting, two clients";

fn beside_others(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start(&bench.module)?;
    let others = contenders::others(&bench.module)?;
    let contenders = contenders::waiting(&server, etcd.is_some())?;
    let (count, hand_overs) = (bench.rounds(3, 1), bench.rounds(9, 5));
    let mut medians: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            bench.progress.step("hand-over", contenders[index].name);
            let times = hand_over_times(
                &server,
                &others,
                etcd.as_ref(),
                contenders[index],
                round,
                hand_overs,
            )?;
            medians[index].push(Spread::of(times).median);
        }
    }
    let figure = |index: usize| {
        let value = Spread::of(medians[index].iter().copied());
        Figure::new("hand-over, p50", value)
            .of(contenders[index].name)
            .ms()
            .case(OTHERS_CASE)
    };
    let mut bars = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        let pairs = medians[0].iter().zip(&medians[index]);
        let ratio = Spread::of(pairs.map(|(ours, theirs)| ours / theirs));
        summary.add(if index == 0 {
            figure(0)
        } else {
            figure(index).ratio(ratio)
        });
        bars.push(Bar {
            name: contender.name.into(),
            value: Spread::of(medians[index].iter().copied()),
        });
    }
    summary.plot(Plot {
        file: "hand-over",
        title: "From a release until the next client has the lock".into(),
        about: format!("two clients, {hand_overs} hand-overs a round, medians of rounds: {count}; each waits by its own rule"),
        shape: Shape::Bars { unit: "ms", bars },
    });
    if etcd.is_some() {
        summary.note(
            "etcd looks after a new waiter only every 100 ms: a lock held for less time is handed over later",
        );
    }
    for missing in contenders::missing(&mut server.connect()?, etcd.is_some())? {
        summary.note(missing);
    }
    Ok(())
}

/// In milliseconds.
fn hand_over_times(
    server: &Server,
    others: &[Server],
    etcd: Option<&Etcd>,
    contender: Waiting,
    round: usize,
    hand_overs: usize,
) -> Result<Vec<f64>> {
    let key = format!("hand-over:{}:{round}", contender.name);
    let open = |number| {
        (contender.open)(&Wanted {
            server,
            others,
            etcd,
            key: &key,
            number,
            lease_ms: LEASE_MS,
        })
    };
    let (mut holder, waiter) = (open(0)?, open(1)?);
    thread::scope(|scope| {
        let (ask, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let thread =
            scope.spawn(move || wait_in_turn(waiter, &asked, &tell).map_err(|error| error.to_string()));
        let mut times = Vec::new();
        for _ in 0..hand_overs {
            acquire(holder.as_mut())?;
            // An error if the waiter has given up: its own error comes below.
            if ask.send(()).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(fastrand::u64(HELD_MS)));
            let released = Instant::now();
            holder.release()?;
            let Ok(granted) = told.recv() else { break };
            times.push(ms(Instant::saturating_duration_since(&granted, released)));
        }
        drop(ask);
        thread.join().map_err(|_| "the waiter panicked")??;
        Ok(times)
    })
}

/// Whenever it is asked to: takes the lock, gives it back, and tells when it had it.
fn wait_in_turn(
    mut client: Box<dyn Client>,
    asked: &mpsc::Receiver<()>,
    tell: &mpsc::Sender<Instant>,
) -> Result<()> {
    while asked.recv().is_ok() {
        acquire(client.as_mut())?;
        let granted = Instant::now();
        client.release()?;
        tell.send(granted)?;
    }
    Ok(())
}

/// However long it takes, within reason.
fn acquire(client: &mut dyn Client) -> Result<()> {
    let patience = Instant::now() + Duration::from_millis(LEASE_MS / 2);
    if client.acquire(patience)? {
        Ok(())
    } else {
        Err("a lock was not granted, though nobody held it".into())
    }
}
