//! Memory of held locks, including the module's expiry index, and the time to save and to load a million of them.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::locks::{Lock, Names, Requests, dlock, set_and_del, short_names};
use crate::results::Results;
use crate::scale::{Scale, turns};
use crate::server::Server;
use crate::stats::ms;
use crate::wire::Connection;

const LOCKS: usize = 200_000;
const MANY: usize = 1_000_000;
/// Requests encoded at a time: all at once would take more memory than the locks.
const CHUNK: usize = 100_000;

/// Hash tables grow incrementally, in the background too, so `used_memory` is read once it is stable.
const STABLE_SAMPLES: u32 = 4;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SAMPLES: u32 = 100;
/// What the server itself allocates and frees meanwhile.
const NOISE_BYTES: f64 = 16_384.0;

type NamesOf = fn(usize) -> Names;

/// With the bytes of key and owner.
const NAMES: [(&str, NamesOf); 4] = [
    ("key of 11 bytes, owner of 12", short_names),
    ("key of 40 bytes, owner of 12", long_key),
    ("key of 11 bytes, owner of 36", |number| {
        with_uuid(short_names(number), number)
    }),
    ("key of 40 bytes, owner of 36", |number| {
        with_uuid(long_key(number), number)
    }),
];

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let locks = [dlock(), set_and_del()];
    for (setting, names) in NAMES {
        for (round, index) in turns(1, locks.len()) {
            let server = Server::start()?;
            let bytes = bytes_per_lock(&mut server.connect()?, &locks[index], scale.count(LOCKS), names)?;
            results
                .round(setting, locks[index].name, round)
                .add("memory of a held lock", "bytes", bytes);
        }
    }
    for (round, index) in turns(scale.rounds(3), locks.len()) {
        let server = Server::start()?;
        million(scale.count(MANY), &locks[index], &server, round, results)?;
    }
    Ok(())
}

fn long_key(number: usize) -> Names {
    Names {
        key: format!("lock:{number:035}"),
        ..short_names(number)
    }
}

/// An owner as long as a UUID.
fn with_uuid(names: Names, number: usize) -> Names {
    Names {
        owner: format!("{number:08x}-0000-4000-8000-{number:012x}"),
        ..names
    }
}

/// Acquires locks. Returns what `used_memory` grows by.
pub fn bytes_per_lock(connection: &mut Connection, lock: &Lock, count: usize, names: NamesOf) -> Result<f64> {
    let before = used_memory(connection)?;
    for first in (0..count).step_by(CHUNK) {
        let numbers = first..count.min(first + CHUNK);
        Requests::of(&[&lock.acquire], numbers.map(names)).run(connection)?;
    }
    Ok((used_memory(connection)? - before) / count as f64)
}

pub fn used_memory(connection: &mut Connection) -> Result<f64> {
    let mut memory = connection.number("memory", "used_memory")?;
    let mut stable = 0;
    for _ in 0..MAX_SAMPLES {
        thread::sleep(SAMPLE_INTERVAL);
        let now = connection.number("memory", "used_memory")?;
        stable = if (now - memory).abs() < NOISE_BYTES {
            stable + 1
        } else {
            0
        };
        memory = now;
        if stable == STABLE_SAMPLES {
            return Ok(memory);
        }
    }
    Err("used_memory does not become stable".into())
}

fn million(count: usize, lock: &Lock, server: &Server, round: usize, results: &mut Results) -> Result<()> {
    let connection = &mut server.connect()?;
    let bytes = bytes_per_lock(connection, lock, count, short_names)?;
    let save = timed(connection, &["SAVE"])?;
    let file = fs::metadata(snapshot(connection)?)?.len() as f64 / count as f64;
    // Emptied first, so that only loading is timed, like at startup.
    connection.call(&["FLUSHALL", "SYNC"])?;
    let load = timed(connection, &["DEBUG", "RELOAD", "NOSAVE"])?;
    let keys: usize = connection.ask(&["DBSIZE"])?;
    if keys != count {
        return Err(format!("{keys} keys were loaded instead of {count}").into());
    }
    let mut row = results.round("a million", lock.name, round);
    row.add("memory of a held lock", "bytes", bytes)
        .add("snapshot", "bytes per lock", file);
    row.add("SAVE", "ms", save).add("load", "ms", load);
    Ok(())
}

/// In milliseconds.
fn timed(connection: &mut Connection, command: &[&str]) -> Result<f64> {
    let start = Instant::now();
    connection.call(command)?;
    Ok(ms(start.elapsed()))
}

/// The file that SAVE has written.
fn snapshot(connection: &mut Connection) -> Result<PathBuf> {
    let mut setting = |name| {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            connection.ask::<(String, String)>(&["CONFIG", "GET", name])?.1,
        )
    };
    Ok(PathBuf::from(setting("dir")?).join(setting("dbfilename")?))
}
