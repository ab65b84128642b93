//! What very many held locks take in memory, and how long a snapshot of them takes to write and to load.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;
use crate::contenders::command::{Contender, Names, Requests, short_names};
use crate::resp::{Connection, Reply};
use crate::results::spread::ms;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;
use crate::works::memory::{long_key, used_memory};
use crate::works::pairs::{self, Beside};

/// So many requests are made at a time: all at once would take more memory than the locks.
const AT_A_TIME: usize = 100_000;

type NamesOf = fn(usize) -> Names;

const SHORT: NamesOf = short_names;
const LONG: NamesOf = |number| Names {
    key: long_key(number),
    ..short_names(number)
};

/// Of one contender, on a server of its own.
struct Kept {
    /// Growth of `used_memory`, in bytes a key.
    memory: f64,
    /// In the snapshot, in bytes a key.
    file: f64,
    /// In milliseconds.
    save: f64,
    load: f64,
}

pub fn measure(bench: &Bench, locks: usize, summary: &mut Summary) -> Result<()> {
    for (what, count, names) in [
        ("lock:000123 by owner-000123", bench.rounds(3, 1), SHORT),
        ("names of 40 bytes", 1, LONG),
    ] {
        let case = format!("{locks} held, {what}");
        bench.progress.step("million", &case);
        let rounds = rounds(&bench.module, locks, count, names)?;
        let mut add = |metric, unit, of| pairs::add(summary, &case, metric, unit, &rounds, of);
        add("memory a key", "bytes", |kept: &Kept| kept.memory);
        add("in the snapshot", "bytes", |kept| kept.file);
        add("SAVE", "ms", |kept| kept.save);
        add("load", "ms", |kept| kept.load);
        let memory = pairs::ratio(&rounds, |kept| kept.memory);
        summary.add(Figure::new("memory to SET PX", memory).case(case).at_most(1.40));
    }
    Ok(())
}

fn rounds(module: &Path, locks: usize, count: usize, names: NamesOf) -> Result<Vec<Beside<Kept>>> {
    pairs::rounds(count, |contender| keep(module, contender, locks, names))
}

fn keep(module: &Path, contender: &Contender, locks: usize, names: NamesOf) -> Result<Kept> {
    let server = Server::start_with(module, &["--enable-debug-command", "local"])?;
    let connection = &mut server.connect()?;
    let before = used_memory(connection)?;
    for first in (0..locks).step_by(AT_A_TIME) {
        let numbers = first..locks.min(first + AT_A_TIME);
        Requests::of(numbers.map(|number| (&contender.acquire, names(number)))).run(connection)?;
    }
    let memory = used_memory(connection)? - before;
    let save = timed(connection, &["SAVE"])?;
    let file = fs::metadata(snapshot(connection)?)?.len() as f64;
    // Emptied before: the time is that of the loading alone, as at a start.
    connection.call(&["FLUSHALL", "SYNC"])?;
    let load = timed(connection, &["DEBUG", "RELOAD", "NOSAVE"])?;
    let keys = connection.call(&["DBSIZE"])?;
    if keys != Reply::Integer(locks.try_into()?) {
        return Err(format!("{keys:?} keys were loaded in place of {locks}").into());
    }
    let each = |sum: f64| sum / locks as f64;
    Ok(Kept {
        memory: each(memory),
        file: each(file),
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

/// Where SAVE has put it.
fn snapshot(connection: &mut Connection) -> Result<PathBuf> {
    let folder = PathBuf::from(setting(connection, "dir")?);
    Ok(folder.join(setting(connection, "dbfilename")?))
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
