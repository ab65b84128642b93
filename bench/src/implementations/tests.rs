//! Every implementation that is compared must work as a lock on a real server.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::implementations::command::{Command, Names, Reentry, Requests, load_script, short_names};
use crate::server::Server;
use crate::workloads::contention::{Window, Worker, WorkerLogs, run_workers};

const TIMEOUT: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 30_000;

fn run(command: &Command, names: Names, connection: &mut Connection) -> Result<()> {
    Requests::of(std::iter::once((command, names))).run(connection)
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
        let twice = run(&implementation.acquire, other(), connection);
        assert!(twice.is_err(), "{name}: acquired twice");
        for release in implementation.release_commands() {
            run(release, short_names(1), connection)?;
        }
        let keys = connection.call(&["DBSIZE"])?;
        assert_eq!(keys, Reply::Integer(0), "{name} leaves keys behind");
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
    let servers = Servers::start(true)?;
    for (name, open) in servers.client_kinds()? {
        let mut holder = servers.open(open, name, 0, LEASE_MS)?;
        let mut waiter = servers.open(open, name, 1, LEASE_MS)?;
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
            let is_expected = [2, 3, 10].contains(&commands);
            assert!(is_expected, "{name}: {commands} commands for a free lock");
        }
    }
    Ok(())
}

/// Runs short windows with fresh workers until a lock was acquired in one of them.
fn run_until_acquired(capacity: usize, workers: impl Fn() -> Result<Vec<Worker>>) -> Result<()> {
    let has_acquisitions = |logs: WorkerLogs| logs.outcome(logs.commands).acquisitions > 0.0;
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        let window = Window::of(Duration::from_millis(1), Duration::from_millis(100));
        if has_acquisitions(run_workers(workers()?, capacity, window)?) {
            return Ok(());
        }
    }
    Err("the lock was never acquired".into())
}

#[test]
fn workers_of_each_implementation_exclude_each_other() -> Result<()> {
    let servers = Servers::start(true)?;
    for (name, open) in servers.client_kinds()? {
        let worker = |number| servers.open(open, name, number, LEASE_MS).map(Worker::new);
        run_until_acquired(1, || (0..4).map(worker).collect()).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[test]
fn readers_share_the_lock_and_writers_are_exclusive() -> Result<()> {
    let servers = Servers::single()?;
    for (name, reader, writer) in READ_WRITE_LOCKS {
        let client = |number| {
            let (open, weight) = if number < 3 { (reader, 1) } else { (writer, 3) };
            Ok(Worker::weighted(
                servers.open(open, name, number, LEASE_MS)?,
                weight,
            ))
        };
        run_until_acquired(3, || (0..4).map(client).collect()).map_err(|error| format!("{name}: {error}"))?;

        let mut readers =
            [0, 1].map(|number| servers.open(reader, &format!("both:{name}"), number, LEASE_MS));
        for reader in &mut readers {
            let reader = reader.as_mut().map_err(|error| error.to_string())?;
            assert!(reader.acquire(Instant::now() + TIMEOUT)?, "{name}");
        }
    }
    Ok(())
}

#[test]
fn semaphore_with_permits_limits_its_holders() -> Result<()> {
    let servers = Servers::single()?;
    for (name, open) in SEMAPHORES {
        let client = |number| {
            Ok(Worker::new(servers.open(
                open,
                &format!("semaphore:{name}"),
                number,
                LEASE_MS,
            )?))
        };
        run_until_acquired(PERMITS, || (0..2 * PERMITS).map(client).collect())
            .map_err(|error| format!("{name}: {error}"))?;

        let holder = |number| servers.open(open, &format!("all:{name}"), number, LEASE_MS);
        for holder in &mut (0..PERMITS).map(holder).collect::<Result<Vec<_>>>()? {
            assert!(holder.acquire(Instant::now() + TIMEOUT)?, "{name}");
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
fn redisson_release_names_channel_and_latch() -> Result<()> {
    let server = Server::start()?;
    let release = redisson::mutex(&mut server.connect()?)?.release;
    let words = release.words(&Names {
        request_id: 10,
        ..short_names(7)
    });
    assert_eq!(
        words[2..5],
        ["3", "lock:000007", "redisson_lock__channel:{lock:000007}"]
    );
    assert_eq!(
        words[5],
        "redisson_unlock_latch:{lock:000007}:0000000000000000000000000000000a"
    );
    assert_eq!(words[8], "owner-000007");
    Ok(())
}
