//! Every implementation that is compared must work as a lock on a real server.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::implementations::command::{Command, Names, Reentry, Requests, short_names};
use crate::workloads::contention::{Window, Worker, WorkerLogs, run_workers};

const TIMEOUT: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 30_000;

fn run(command: &Command, names: Names, connection: &mut Connection) -> Result<()> {
    Requests::of(std::iter::once((command, names))).run(connection)
}

/// Servers that an implementation may need.
struct Servers {
    server: Server,
    other_servers: Vec<Server>,
    etcd: Option<Etcd>,
}

impl Servers {
    fn start() -> Result<Self> {
        Ok(Self {
            server: Server::start()?,
            other_servers: start_other_servers()?,
            etcd: Etcd::start()?,
        })
    }

    fn client_kinds(&self) -> Result<Vec<ClientKind>> {
        client_kinds(&self.server, self.etcd.is_some())
    }

    fn config<'a>(&'a self, key: &'a str, number: usize) -> ClientConfig<'a> {
        ClientConfig {
            server: &self.server,
            other_servers: &self.other_servers,
            etcd: self.etcd.as_ref(),
            key,
            number,
            lease_ms: LEASE_MS,
        }
    }
}

#[test]
fn commands_of_each_implementation_acquire_and_release() -> Result<()> {
    let server = Server::start()?;
    let connection = &mut server.connect()?;
    let implementations = all(connection)?;
    assert_eq!(implementations[0].0, DLOCK);
    for (name, implementation) in implementations {
        let other = || Names {
            owner: "another-owner".into(),
            ..short_names(1)
        };
        run(&implementation.acquire, short_names(1), connection)?;
        assert!(
            run(&implementation.acquire, other(), connection).is_err(),
            "{name}: acquired twice"
        );
        for release in implementation.release_commands() {
            run(release, short_names(1), connection)?;
        }
        assert_eq!(
            connection.call(&["DBSIZE"])?,
            Reply::Integer(0),
            "{name} leaves keys behind"
        );
        run(&implementation.acquire, other(), connection)?;
        connection.call(&["FLUSHALL"])?;
    }
    Ok(())
}

#[test]
fn reentry_of_each_implementation_is_as_declared() -> Result<()> {
    let server = Server::start()?;
    let connection = &mut server.connect()?;
    for (name, implementation) in all(connection)? {
        run(&implementation.acquire, short_names(1), connection)?;
        let again = run(&implementation.acquire, short_names(1), connection);
        // DLOCK's second reply shows two holds, which is not the reply to a first acquisition.
        let again = again.is_ok() || name == DLOCK;
        assert_eq!(again, implementation.reentry != Reentry::None, "{name}");
        for release in implementation.release_commands() {
            run(&release.accepting_any_reply(), short_names(1), connection)?;
        }
        let is_held = connection.call(&["DBSIZE"])? != Reply::Integer(0);
        assert_eq!(is_held, implementation.reentry == Reentry::Counted, "{name}");
        connection.call(&["FLUSHALL"])?;
    }
    Ok(())
}

#[test]
fn waiter_of_each_implementation_is_granted_after_the_release() -> Result<()> {
    let servers = Servers::start()?;
    for ClientKind { name, open } in servers.client_kinds()? {
        let mut holder = open(&servers.config(name, 0))?;
        let mut waiter = open(&servers.config(name, 1))?;
        assert!(holder.acquire(Instant::now() + TIMEOUT)?, "{name}");
        let granted = thread::spawn(move || {
            let is_granted = waiter.acquire(Instant::now() + TIMEOUT);
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
            // Two; Redisson sends one more after the release; quorum locks send two per server.
            assert!(
                [2, 3, 10].contains(&commands),
                "{name}: {commands} commands for a free lock"
            );
        }
    }
    Ok(())
}

/// Runs short windows with fresh workers until one meets the condition.
fn run_until(
    capacity: usize,
    workers: impl Fn() -> Result<Vec<Worker>>,
    condition: impl Fn(&WorkerLogs) -> bool,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        let window = Window {
            critical_section: Duration::from_millis(1),
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(100),
        };
        if condition(&run_workers(workers()?, capacity, window)?) {
            return Ok(());
        }
    }
    Err("no window met the condition".into())
}

fn has_acquisitions(logs: &WorkerLogs) -> bool {
    logs.outcome(logs.commands).acquisitions > 0.0
}

#[test]
fn workers_of_each_implementation_exclude_each_other() -> Result<()> {
    let servers = Servers::start()?;
    for ClientKind { name, open } in servers.client_kinds()? {
        let worker = |number| open(&servers.config(name, number)).map(Worker::new);
        run_until(1, || (0..4).map(worker).collect(), has_acquisitions)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[test]
fn readers_share_the_lock_and_writers_are_exclusive() -> Result<()> {
    let servers = Servers::start()?;
    for ReadWriteLock { name, reader, writer } in READ_WRITE_LOCKS {
        let client = |number| {
            let (open, weight) = if number < 3 { (reader, 1) } else { (writer, 3) };
            Ok(Worker::weighted(open(&servers.config(name, number))?, weight))
        };
        run_until(3, || (0..4).map(client).collect(), has_acquisitions)
            .map_err(|error| format!("{name}: {error}"))?;

        let key = format!("both:{name}");
        let (mut first, mut second) = (
            reader(&servers.config(&key, 0))?,
            reader(&servers.config(&key, 1))?,
        );
        let deadline = Instant::now() + TIMEOUT;
        assert!(first.acquire(deadline)? && second.acquire(deadline)?, "{name}");
    }
    Ok(())
}

#[test]
fn semaphore_with_permits_limits_its_holders() -> Result<()> {
    let servers = Servers::start()?;
    for ClientKind { name, open } in SEMAPHORES {
        let key = format!("semaphore:{name}");
        let client = |number| Ok(Worker::new(open(&servers.config(&key, number))?));
        run_until(
            PERMITS,
            || (0..2 * PERMITS).map(client).collect(),
            has_acquisitions,
        )
        .map_err(|error| format!("{name}: {error}"))?;

        let deadline = Instant::now() + TIMEOUT;
        let mut holders = (0..PERMITS)
            .map(|number| open(&servers.config(&format!("all:{name}"), number)))
            .collect::<Result<Vec<_>>>()?;
        for holder in &mut holders {
            assert!(holder.acquire(deadline)?, "{name}");
        }
    }
    Ok(())
}

#[test]
fn redsync_delete_script_has_the_published_hash() -> Result<()> {
    let server = Server::start()?;
    let sha = load_script(&mut server.connect()?, redsync::DELETE)?;
    assert_eq!(sha, "e950836ed1e694540c503ef9972b8de518044d3b");
    Ok(())
}

#[test]
fn redisson_release_names_channel_and_latch() {
    let names = short_names(7);
    let words = redisson::pair("acquire", "release").release.words(&names);
    let keys = ["lock:000007", "redisson_lock__channel:{lock:000007}"];
    assert_eq!(words[..5], ["EVALSHA", "release", "3", keys[0], keys[1]]);
    assert_eq!(words[5], "redisson_unlock_latch:{lock:000007}:owner-000007");
    assert_eq!(words[8], "owner-000007");
}
