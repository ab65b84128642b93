//! Each contender against a real server: what is compared must really be a lock.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::contender::{Command, Names, Reentry, Requests, short_names};
use crate::contention::{Shift, Worker, work};

const PATIENCE: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 30_000;

fn server() -> Result<Server> {
    Server::start(&dlock_testkit::module_path())
}

fn run(command: &Command, names: Names, connection: &mut Connection) -> Result<()> {
    Requests::of(std::iter::once((command, names))).run(connection)
}

/// All that a contender may need.
struct World {
    server: Server,
    others: Vec<Server>,
    etcd: Option<Etcd>,
}

impl World {
    fn start() -> Result<Self> {
        Ok(Self {
            server: server()?,
            others: others(&dlock_testkit::module_path())?,
            etcd: Etcd::start()?,
        })
    }

    fn waiting(&self) -> Result<Vec<Waiting>> {
        waiting(&self.server, self.etcd.is_some())
    }

    fn wanted<'a>(&'a self, key: &'a str, number: usize) -> Wanted<'a> {
        Wanted {
            server: &self.server,
            others: &self.others,
            etcd: self.etcd.as_ref(),
            key,
            number,
            lease_ms: LEASE_MS,
        }
    }
}

#[test]
fn commands_take_a_lock_from_others_and_give_it_back() -> Result<()> {
    let server = server()?;
    let connection = &mut server.connect()?;
    let contenders = by_commands(connection)?;
    assert_eq!(contenders[0].0, DLOCK);
    for (name, contender) in contenders {
        let other = || Names {
            owner: "somebody-else".into(),
            ..short_names(1)
        };
        run(&contender.acquire, short_names(1), connection)?;
        assert!(
            run(&contender.acquire, other(), connection).is_err(),
            "{name}: it is held"
        );
        for release in contender.all_release() {
            run(release, short_names(1), connection)?;
        }
        assert_eq!(
            connection.call(&["DBSIZE"])?,
            Reply::Integer(0),
            "{name} leaves something"
        );
        run(&contender.acquire, other(), connection)?;
        connection.call(&["FLUSHALL"])?;
    }
    Ok(())
}

#[test]
fn re_entry_is_what_is_said_of_each() -> Result<()> {
    let server = server()?;
    let connection = &mut server.connect()?;
    for (name, contender) in by_commands(connection)? {
        run(&contender.acquire, short_names(1), connection)?;
        let again = run(&contender.acquire, short_names(1), connection);
        // DLOCK's second reply tells of two holds: not what the first must be.
        let again = again.is_ok() || name == DLOCK;
        assert_eq!(again, contender.reentry != Reentry::None, "{name}");
        for release in contender.all_release() {
            run(&release.loosely(), short_names(1), connection)?;
        }
        let is_held = connection.call(&["DBSIZE"])? != Reply::Integer(0);
        assert_eq!(is_held, contender.reentry == Reentry::Counted, "{name}");
        connection.call(&["FLUSHALL"])?;
    }
    Ok(())
}

#[test]
fn who_waits_gets_the_lock_after_the_release_and_not_before() -> Result<()> {
    let world = World::start()?;
    for Waiting { name, open } in world.waiting()? {
        let mut holder = open(&world.wanted(name, 0))?;
        let mut waiter = open(&world.wanted(name, 1))?;
        assert!(holder.acquire(Instant::now() + PATIENCE)?, "{name}");
        let granted = thread::spawn(move || {
            let is_granted = waiter.acquire(Instant::now() + PATIENCE);
            let granted = Instant::now();
            let end = is_granted.and_then(|is_granted| waiter.release().map(|()| is_granted));
            end.map(|is_granted| (is_granted, granted))
                .map_err(|error| error.to_string())
        });
        thread::sleep(Duration::from_millis(5));
        let released = Instant::now();
        holder.release()?;
        let (is_granted, granted) = granted.join().map_err(|_| "the waiter panicked")??;
        assert!(is_granted && granted >= released, "{name}");
        if let Some(commands) = holder.commands() {
            // Two; with Redisson one more behind the release; with a majority as often as there are servers.
            assert!(
                [2, 3, 10].contains(&commands),
                "{name}: {commands} for a lock that was free"
            );
        }
    }
    Ok(())
}

#[test]
fn workers_are_alone_inside_whatever_they_wait_by() -> Result<()> {
    let world = World::start()?;
    for Waiting { name, open } in world.waiting()? {
        let worker = |number| open(&world.wanted(name, number)).map(Worker::alone);
        let workers = (0..4).map(worker).collect::<Result<Vec<_>>>()?;
        let shift = Shift {
            section: Duration::from_millis(1),
            lasts: Duration::from_millis(200),
        };
        let group = work(workers, 1, shift).map_err(|error| format!("{name}: {error}"))?;
        assert!(group.outcome(group.commands).acquisitions > 0.0, "{name}");
    }
    Ok(())
}

#[test]
fn readers_and_permits_share_and_writers_do_not() -> Result<()> {
    let world = World::start()?;
    let shift = || Shift {
        section: Duration::from_millis(1),
        lasts: Duration::from_millis(200),
    };
    for shared in SHARED {
        let client = |number| {
            let open = if number < 3 { shared.reader } else { shared.writer };
            let takes = if number < 3 { 1 } else { 3 };
            Ok(Worker::with(open(&world.wanted(shared.name, number))?, takes))
        };
        let workers = (0..4).map(client).collect::<Result<Vec<_>>>()?;
        let (readers, _) = work(workers, 3, shift())?.split(3);
        assert!(readers.acquisitions > 0.0, "{}", shared.name);
        // Two readers at once: the second is let in while the first still reads.
        let key = format!("both:{}", shared.name);
        let mut first = (shared.reader)(&world.wanted(&key, 0))?;
        let mut second = (shared.reader)(&world.wanted(&key, 1))?;
        assert!(first.acquire(Instant::now() + PATIENCE)? && second.acquire(Instant::now() + PATIENCE)?);
    }
    for Waiting { name, open } in SEMAPHORES {
        let key = format!("semaphore:{name}");
        let client = |number| Ok(Worker::alone(open(&world.wanted(&key, number))?));
        let workers = (0..2 * PERMITS).map(client).collect::<Result<Vec<_>>>()?;
        let group = work(workers, PERMITS, shift()).map_err(|error| format!("{name}: {error}"))?;
        assert!(group.outcome(group.commands).acquisitions > 0.0, "{name}");
    }
    Ok(())
}

#[test]
fn redsyncs_script_is_the_one_that_redsync_names_by_its_hash() -> Result<()> {
    let server = server()?;
    let sha = load_script(&mut server.connect()?, redsync::DELETE)?;
    assert_eq!(sha, "e950836ed1e694540c503ef9972b8de518044d3b");
    Ok(())
}

#[test]
fn redissons_release_names_its_channel_and_its_latch() {
    let names = short_names(7);
    let words = redisson::pair("acquire", "release").release.words(&names);
    let keys = ["lock:000007", "redisson_lock__channel:{lock:000007}"];
    assert_eq!(words[..5], ["EVALSHA", "release", "3", keys[0], keys[1]]);
    assert_eq!(words[5], "redisson_unlock_latch:{lock:000007}:owner-000007");
    assert_eq!(words[8], "owner-000007");
}
