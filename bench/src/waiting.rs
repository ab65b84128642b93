//! What waiting for a lock costs: the hand-over, a lock that many want, and a very long queue.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::resp::{Connection, Reply, encode};
use crate::server::Server;
use crate::spread::Spread;
use crate::table::{Figure, Summary};
use crate::{Result, machine};

const KEY: &str = "lock";
const LEASE_MS: i64 = 30_000;

/// Nobody sends anything for so long before a hand-over, nor before a PING: what sleeps has to be woken.
const IDLE: Duration = Duration::from_millis(2);
/// In one round.
const HAND_OVERS: usize = 500;

const WORKERS: usize = 16;
const WORK: Duration = Duration::from_millis(1);
/// For so long they work in one round.
const SHIFT: Duration = Duration::from_secs(2);

const WAITERS: usize = 10_000;
/// Those at the front of the queue are compared with as many at its end.
const EDGE: usize = 1_000;
/// Open files of a server or of this program beside the waiters' connections, generously.
const OTHER_FILES: usize = 200;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (module, rounds) = (&bench.module, bench.rounds(5, 1));
    println!("\nWaiting, medians of {rounds} rounds (lowest to highest), each on a fresh server");
    let repeat = 0..rounds;
    hand_over(module, repeat.clone(), summary)?;
    contention(module, repeat.clone(), summary)?;
    long_queue(module, repeat, summary)
}

/// An owner on a connection of its own, with commands that are bytes already.
struct Party {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

/// What the reply to ACQUIRE tells.
struct Grant {
    fence: i64,
    waited_ms: i64,
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

    fn ask(&mut self) -> Result<()> {
        Ok(self.connection.send(&self.acquire)?)
    }

    fn granted(&mut self) -> Result<Grant> {
        Grant::of(&self.connection.receive()?)
    }

    fn give_back(&mut self) -> Result<()> {
        Ok(self.connection.send(&self.release)?)
    }

    /// The answer shows that this owner was the holder: anybody else gets an error.
    fn given_back(&mut self) -> Result<()> {
        expect(&self.connection.receive()?, &Reply::Integer(0))
    }
}

impl Grant {
    /// A first hold, whether it was waited for or not.
    fn of(reply: &Reply) -> Result<Self> {
        if let Reply::Array(numbers) = reply
            && let [
                Reply::Integer(fence @ 1..),
                Reply::Integer(1),
                Reply::Integer(1..=LEASE_MS),
                Reply::Integer(waited_ms @ 0..),
            ] = numbers[..]
        {
            Ok(Self { fence, waited_ms })
        } else {
            Err(format!("not a grant: {reply:?}").into())
        }
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

fn spread<T>(samples: &[T], of: fn(&T) -> f64) -> Spread {
    Spread::of(samples.iter().map(of))
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Times in microseconds: medians of one round.
struct HandOver {
    lock: f64,
    /// The least that a reply to a blocked client can cost: an item pushed for a client that waits by BLPOP.
    item: f64,
    ping: f64,
}

fn hand_over(module: &Path, rounds: impl Iterator<Item = usize>, summary: &mut Summary) -> Result<()> {
    println!(
        "\n   hand-over: RELEASE sent to the waiter's reply read, {HAND_OVERS} a round, in turn with PING"
    );
    println!("   and with RPUSH sent to BLPOP's reply read, each after {IDLE:?} of silence");
    let samples = rounds
        .map(|_| hand_over_round(&Server::start(module)?))
        .collect::<Result<Vec<_>>>()?;
    let lock = spread(&samples, |sample| sample.lock / sample.ping);
    let item = spread(&samples, |sample| sample.item / sample.ping);
    println!("     {:<26}{lock:.3}", "hand-over / PING");
    println!("     {:<26}{item:.3}", "RPUSH to BLPOP / PING");
    let row = |name, of: fn(&HandOver) -> f64| println!("     {name:<26}{:.1} us", spread(&samples, of));
    row("hand-over", |sample| sample.lock);
    row("RPUSH to BLPOP", |sample| sample.item);
    row("PING", |sample| sample.ping);
    summary.add(Figure::new("hand-over / PING", lock).at_most(1.30));
    summary.add(Figure::new("  RPUSH to BLPOP / PING", item));
    Ok(())
}

/// Two owners hand a lock to and fro, and an item too. One thread reads every reply, in the same way.
fn hand_over_round(server: &Server) -> Result<HandOver> {
    let mut holder = Party::new(server.connect()?, "alice");
    let mut other = Party::new(server.connect()?, "bob");
    let (ping, pong) = (bytes(&["PING"]), Reply::Simple("PONG".into()));
    let (pop, push) = (bytes(&["BLPOP", "list", "0"]), bytes(&["RPUSH", "list", "item"]));
    let popped = Reply::Array(["list", "item"].map(|text| Reply::Bulk(text.into())).into());
    let (mut locks, mut items, mut pings) = (Vec::new(), Vec::new(), Vec::new());
    holder.ask()?;
    let mut fence = holder.granted()?.fence;
    for _ in 0..2 * HAND_OVERS {
        let (ping_took, reply) = after_silence(&mut other.connection, &ping, None)?;
        expect(&reply, &pong)?;

        other.connection.send(&pop)?;
        let (item_took, reply) = after_silence(&mut holder.connection, &push, Some(&mut other.connection))?;
        expect(&reply, &popped)?;
        expect(&holder.connection.receive()?, &Reply::Integer(1))?;

        other.ask()?;
        let release = &holder.release;
        let (lock_took, reply) = after_silence(&mut holder.connection, release, Some(&mut other.connection))?;
        let grant = Grant::of(&reply)?;
        holder.given_back()?;
        if grant.fence <= fence {
            return Err("a later grant has no higher fence".into());
        }
        fence = grant.fence;
        std::mem::swap(&mut holder, &mut other);
        // On a busy machine the server may read the request for the lock only after the silence, together
        // with the RELEASE.
        if grant.waited_ms > 0 {
            locks.push(us(lock_took));
            items.push(us(item_took));
            pings.push(us(ping_took));
        }
        if locks.len() == HAND_OVERS {
            return Ok(HandOver {
                lock: Spread::of(locks).median,
                item: Spread::of(items).median,
                ping: Spread::of(pings).median,
            });
        }
    }
    Err("most hand-overs were to owners that had hardly waited: the machine is too busy".into())
}

/// After some silence, from just before a command is sent until a reply is read: that of the command, or that
/// which somebody else waits for.
fn after_silence(
    sender: &mut Connection,
    command: &[u8],
    waiter: Option<&mut Connection>,
) -> Result<(Duration, Reply)> {
    thread::sleep(IDLE);
    let start = Instant::now();
    sender.send(command)?;
    let reply = waiter.unwrap_or(sender).receive()?;
    Ok((start.elapsed(), reply))
}

/// What one round showed of a lock that all workers want.
struct Contention {
    /// That the server counted, for each acquisition.
    commands: f64,
    /// In a second.
    acquisitions: f64,
    /// The part of the time in which somebody did the work that the lock is for.
    at_work: f64,
    /// Jain's index of the acquisitions of each worker: 1 when all have as many, 1/16 when one has all.
    fairness: f64,
    /// In milliseconds, from the request to the grant.
    wait_p50: f64,
    wait_p99: f64,
    wait_max: f64,
}

/// What one worker saw.
#[derive(Default)]
struct Log {
    waits: Vec<f64>,
    fences: Vec<i64>,
    worked: Duration,
}

fn contention(module: &Path, rounds: impl Iterator<Item = usize>, summary: &mut Summary) -> Result<()> {
    println!("\n   contention: {WORKERS} workers, one lock, {WORK:?} of work each time, {SHIFT:?} a round");
    let samples = rounds
        .map(|_| contention_round(&Server::start(module)?))
        .collect::<Result<Vec<_>>>()?;
    let commands = spread(&samples, |sample| sample.commands);
    println!("     {:<26}{commands:.3}", "commands an acquisition");
    let acquisitions = spread(&samples, |sample| sample.acquisitions);
    println!("     {:<26}{acquisitions:.0}", "acquisitions a second");
    let row = |name, unit, of: fn(&Contention) -> f64| {
        println!("     {name:<26}{:.2}{unit}", spread(&samples, of));
    };
    row("part of the time at work", "", |sample| sample.at_work);
    row("fairness (Jain)", "", |sample| sample.fairness);
    row("wait, p50", " ms", |sample| sample.wait_p50);
    row("wait, p99", " ms", |sample| sample.wait_p99);
    row("wait, longest", " ms", |sample| sample.wait_max);
    // Fewer cannot be: the round looks at that.
    summary.add(Figure::new("commands a contended acquisition", commands).at_most(2.0));
    Ok(())
}

fn contention_round(server: &Server) -> Result<Contention> {
    let inside = AtomicBool::new(false);
    let parties = (0..WORKERS)
        .map(|number| Ok(Party::new(server.connect()?, &format!("worker-{number:02}"))))
        .collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let logs = thread::scope(|scope| {
        let workers: Vec<_> = parties
            .into_iter()
            .map(|party| {
                scope.spawn(|| work(party, start + SHIFT, &inside).map_err(|error| error.to_string()))
            })
            .collect();
        let logs = workers.into_iter().map(|worker| worker.join());
        logs.map(|log| Ok(log.map_err(|_| "a worker panicked")??))
            .collect::<Result<Vec<_>>>()
    })?;
    let took = start.elapsed().as_secs_f64();

    let counts: Vec<_> = logs.iter().map(|log| log.waits.len() as f64).collect();
    let acquisitions: f64 = counts.iter().sum();
    let commands = calls(server, "dlock.acquire")? + calls(server, "dlock.release")?;
    if commands < 2.0 * acquisitions {
        return Err("the server counted fewer commands than the workers sent".into());
    }
    let mut fences: Vec<_> = logs.iter().flat_map(|log| &log.fences).collect();
    fences.sort_unstable();
    if fences.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("two grants had the same fence".into());
    }
    let mut waits: Vec<_> = logs.iter().flat_map(|log| log.waits.iter().copied()).collect();
    waits.sort_by(f64::total_cmp);
    let wait_at = |percent| waits[(waits.len() - 1) * percent / 100];
    let worked: f64 = logs.iter().map(|log| log.worked.as_secs_f64()).sum();
    Ok(Contention {
        commands: commands / acquisitions,
        acquisitions: acquisitions / took,
        at_work: worked / took,
        fairness: fairness(&counts),
        wait_p50: wait_at(50),
        wait_p99: wait_at(99),
        wait_max: wait_at(100),
    })
}

/// Takes the lock again and again, at least once.
fn work(mut party: Party, end: Instant, inside: &AtomicBool) -> Result<Log> {
    let mut log = Log::default();
    while log.waits.is_empty() || Instant::now() < end {
        let asked = Instant::now();
        party.ask()?;
        let grant = party.granted()?;
        let start = Instant::now();
        if inside.swap(true, Ordering::SeqCst) {
            return Err("two workers held the lock at once".into());
        }
        thread::sleep(WORK);
        inside.store(false, Ordering::SeqCst);
        log.worked += start.elapsed();
        log.waits.push(us(start - asked) / 1e3);
        log.fences.push(grant.fence);
        party.give_back()?;
        party.given_back()?;
    }
    Ok(log)
}

/// How often the server carried a command out.
fn calls(server: &Server, command: &str) -> Result<f64> {
    let field = format!("cmdstat_{command}");
    let stats = server.connect()?.info("commandstats", &field)?;
    let calls = stats.as_deref().and_then(|stats| {
        let fields = &mut stats.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(name, _)| *name == "calls")
    });
    let (_, calls) = calls.ok_or_else(|| format!("INFO commandstats without the calls of {command}"))?;
    Ok(calls.parse()?)
}

/// Jain's index.
fn fairness(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (counts.len() as f64 * squares)
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

fn long_queue(module: &Path, rounds: impl Iterator<Item = usize>, summary: &mut Summary) -> Result<()> {
    let files = machine::allow_open_files((WAITERS + OTHER_FILES) as u64)?;
    let waiters = WAITERS.min(
        usize::try_from(files)
            .unwrap_or(WAITERS)
            .saturating_sub(OTHER_FILES),
    );
    if waiters < 2 * EDGE {
        return Err(format!("only {files} open files are allowed (ulimit -n)").into());
    }
    println!("\n   long queue: {waiters} waiters for one lock, one client releases for each holder in turn");
    if waiters < WAITERS {
        println!(
            "   FEWER than the {WAITERS} that the target means: {files} open files are allowed (ulimit -n)"
        );
    }
    let samples = rounds
        .map(|_| long_queue_round(module, waiters))
        .collect::<Result<Vec<_>>>()?;

    let served = spread(&samples, |sample| sample.served);
    println!("     {:<28}{served:.0} ms", "all served");
    let ratio = spread(&samples, |sample| sample.hand_over.first / sample.hand_over.last);
    println!("     {:<28}{ratio:.3}", "hand-over, first / last");
    let row = |name, of: fn(&LongQueue) -> f64| println!("     {name:<28}{:.1} us", spread(&samples, of));
    row("  one of the first 1000", |sample| sample.hand_over.first);
    row("  one of the last 1000", |sample| sample.hand_over.last);
    row("enqueue + PING, first 1000", |sample| sample.enqueue.first);
    row("enqueue + PING, last 1000", |sample| sample.enqueue.last);
    summary.add(
        Figure::new("10000 waiters, all served", served)
            .ms()
            .at_most(2_000.0),
    );
    summary.add(Figure::new("  hand-over, first 1000 / last 1000", ratio).at_most(1.25));
    Ok(())
}

fn long_queue_round(module: &Path, waiters: usize) -> Result<LongQueue> {
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
    holder.ask()?;
    let mut fence = holder.granted()?.fence;

    let mut enqueues = Vec::new();
    for waiter in &mut *queue {
        let start = Instant::now();
        waiter.ask()?;
        // The server answers this once it has read that: the queue has the order of the names.
        control.call(&["PING"])?;
        enqueues.push(us(start.elapsed()));
    }
    let waiting = control.info_number("dlock", "dlock_waiting_now")?;
    if waiting != waiters as f64 {
        return Err(format!("{waiting} waiters in place of {waiters}").into());
    }

    let mut hand_overs = Vec::new();
    let start = Instant::now();
    for release in &releases[..waiters] {
        let start = Instant::now();
        control.send(release)?;
        expect(&control.receive()?, &Reply::Integer(0))?;
        hand_overs.push(us(start.elapsed()));
    }
    let [earlier @ .., last] = queue else {
        return Err("nobody waited".into());
    };
    let last = last.granted()?;
    let served = us(start.elapsed()) / 1e3;
    for grant in earlier.iter_mut().map(Party::granted).chain([Ok(last)]) {
        let grant = grant?;
        if grant.fence <= fence {
            return Err("the fences do not have the order of the queue".into());
        }
        fence = grant.fence;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_hold_is_a_grant() {
        let grant = |numbers: [i64; 4]| Grant::of(&Reply::Array(numbers.map(Reply::Integer).into()));
        for waited_ms in [0, 5] {
            let grant = grant([7, 1, LEASE_MS, waited_ms]).ok();
            assert_eq!(
                grant.map(|grant| (grant.fence, grant.waited_ms)),
                Some((7, waited_ms))
            );
        }
        for wrong in [[0, 1, 9, 0], [7, 2, 9, 0], [7, 1, 0, 0], [7, 1, 9, -1]] {
            assert!(grant(wrong).is_err(), "{wrong:?}");
        }
        assert!(Grant::of(&Reply::Null).is_err());
    }

    #[test]
    fn fairness_falls_when_one_is_served_more_often() {
        let is = |counts: &[f64], expected: f64| (fairness(counts) - expected).abs() < 1e-9;
        assert!(is(&[5.0; 4], 1.0));
        assert!(is(&[5.0, 0.0, 0.0, 0.0], 0.25));
        assert!(is(&[5.0, 1.0], 36.0 / 52.0));
    }
}
