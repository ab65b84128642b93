//! Each contender against a real server: what is compared must really be a lock.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::contenders::command::{Command, Names, Reentry, Requests, short_names};
use crate::works::contention::{Group, Shift, Worker, work};

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

/// Short shifts of fresh workers, until one has shown what is looked for.
fn work_until(
    room: usize,
    workers: impl Fn() -> Result<Vec<Worker>>,
    is_enough: impl Fn(&Group) -> bool,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let shift = Shift {
            section: Duration::from_millis(1),
            lasts: Duration::from_millis(100),
        };
        if is_enough(&work(workers()?, room, shift)?) {
            return Ok(());
        }
    }
    Err("no shift showed it".into())
}

fn acquires(group: &Group) -> bool {
    group.outcome(group.commands).acquisitions > 0.0
}

#[test]
fn workers_are_alone_inside_whatever_they_wait_by() -> Result<()> {
    let world = World::start()?;
    for Waiting { name, open } in world.waiting()? {
        let worker = |number| open(&world.wanted(name, number)).map(Worker::alone);
        work_until(1, || (0..4).map(worker).collect(), acquires)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[test]
fn readers_are_let_in_beside_each_other_and_writers_alone() -> Result<()> {
    let world = World::start()?;
    for Shared { name, reader, writer } in SHARED {
        let client = |number| {
            let (open, takes) = if number < 3 { (reader, 1) } else { (writer, 3) };
            Ok(Worker::with(open(&world.wanted(name, number))?, takes))
        };
        work_until(3, || (0..4).map(client).collect(), acquires)
            .map_err(|error| format!("{name}: {error}"))?;

        let key = format!("both:{name}");
        let (mut first, mut second) = (reader(&world.wanted(&key, 0))?, reader(&world.wanted(&key, 1))?);
        let patience = Instant::now() + PATIENCE;
        assert!(first.acquire(patience)? && second.acquire(patience)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_has_permits() -> Result<()> {
    let world = World::start()?;
    for Waiting { name, open } in SEMAPHORES {
        let key = format!("semaphore:{name}");
        let client = |number| Ok(Worker::alone(open(&world.wanted(&key, number))?));
        work_until(PERMITS, || (0..2 * PERMITS).map(client).collect(), acquires)
            .map_err(|error| format!("{name}: {error}"))?;

        let patience = Instant::now() + PATIENCE;
        let mut holders = (0..PERMITS)
            .map(|number| open(&world.wanted(&format!("all:{name}"), number)))
            .collect::<Result<Vec<_>>>()?;
        for holder in &mut holders {
            assert!(holder.acquire(patience)?, "{name}");
        }
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
