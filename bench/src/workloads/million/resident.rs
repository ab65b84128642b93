//! Memory of many held locks, and the time to save and load a snapshot of them.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::error::Result;
use crate::implementations::command::{Implementation, Names, Requests, short_names};
use crate::resp::{Connection, Reply};
use crate::results::stats::ms;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::memory::{long_key_names, used_memory};
use crate::workloads::pairs::compare;

/// Requests encoded at a time: all at once would take more memory than the locks.
const CHUNK: usize = 100_000;

type NamesOf = fn(usize) -> Names;

/// Of one implementation, on its own server.
struct Resident {
    /// Growth of `used_memory`, in bytes per key.
    memory: f64,
    /// Size of the snapshot, in bytes per key.
    file: f64,
    /// In milliseconds.
    save: f64,
    load: f64,
}

pub fn measure(bench: &Bench, locks: usize, summary: &mut Summary) -> Result<()> {
    for (description, count, names) in [
        (
            "lock:000123 by owner-000123",
            bench.rounds(3, 1),
            short_names as NamesOf,
        ),
        ("key names of 40 bytes", 1, long_key_names),
    ] {
        let case = format!("{locks} held, {description}");
        bench.progress.step("million", &case);
        let both = compare(count, |implementation| measure_one(implementation, locks, names))?;
        both.add(summary, &case, "memory per key", "bytes", |resident| {
            resident.memory
        });
        both.add(summary, &case, "snapshot per key", "bytes", |resident| {
            resident.file
        });
        both.add(summary, &case, "SAVE", "ms", |resident| resident.save);
        both.add(summary, &case, "load", "ms", |resident| resident.load);
        let memory = both.ratio(1, |resident| resident.memory);
        summary.add(Figure::new("memory / SET PX", memory).case(case).at_most(1.40));
    }
    Ok(())
}

fn measure_one(implementation: &Implementation, locks: usize, names: NamesOf) -> Result<Resident> {
    let server = Server::start()?;
    let connection = &mut server.connect()?;
    let before = used_memory(connection)?;
    for first in (0..locks).step_by(CHUNK) {
        let numbers = first..locks.min(first + CHUNK);
        Requests::of(numbers.map(|number| (&implementation.acquire, names(number)))).run(connection)?;
    }
    let memory = used_memory(connection)? - before;
    let save = timed(connection, &["SAVE"])?;
    let file = fs::metadata(snapshot(connection)?)?.len() as f64;
    // Emptied first, so that only loading is timed, like at startup.
    connection.call(&["FLUSHALL", "SYNC"])?;
    let load = timed(connection, &["DEBUG", "RELOAD", "NOSAVE"])?;
    let keys = connection.call(&["DBSIZE"])?;
    if keys != Reply::Integer(locks.try_into()?) {
        return Err(format!("{keys:?} keys were loaded instead of {locks}").into());
    }
    let (memory, file) = (memory / locks as f64, file / locks as f64);
    Ok(Resident {
        memory,
        file,
        save,
        load,
    })
}

/// In milliseconds.
fn timed(connection: &mut Connection, command: &[&str]) -> Result<f64> {
    let start = Instant::now();
    connection.call(command)?;
    Ok(ms(start.elapsed()))
}

/// The file that SAVE has written.
fn snapshot(connection: &mut Connection) -> Result<PathBuf> {
    let directory = PathBuf::from(setting(connection, "dir")?);
    Ok(directory.join(setting(connection, "dbfilename")?))
}

fn setting(connection: &mut Connection, name: &str) -> Result<String> {
    let reply = connection.call(&["CONFIG", "GET", name])?;
    if let Reply::Array(pair) = &reply
        && let [_, Reply::Bulk(value)] = &pair[..]
    {
        Ok(String::from_utf8(value.clone())?)
    } else {
        Err(format!("CONFIG GET {name} answered {reply:?}").into())
    }
}
