//! CPU of an uncontended pair and memory of a held lock on each server of the test matrix.

use std::fs;

use super::memory::bytes_per_lock;
use crate::error::Result;
use crate::locks::{Requests, dlock, set_and_del, short_names};
use crate::results::Results;
use crate::scale::{Scale, turns};
use crate::server::{Server, version_of};

const PAIRS: usize = 100_000;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let Some(directory) = &scale.servers else {
        println!("not measured: `tests/matrix/fetch-servers DIR`, then --servers DIR");
        return Ok(());
    };
    let programs = fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path().join("redis-server"));
    let mut programs: Vec<_> = programs.filter(|program| program.is_file()).collect();
    programs.sort();
    let (locks, count) = ([dlock(), set_and_del()], scale.count(PAIRS));
    for program in programs {
        let program = program
            .to_str()
            .ok_or("the path of a server is not valid UTF-8")?;
        let version = version_of(program)?;
        for (round, index) in turns(scale.rounds(3), locks.len()) {
            let lock = &locks[index];
            let server = Server::running(program, "")?;
            let connection = &mut server.connect()?;
            let pairs = Requests::of(&[&lock.acquire, &lock.release], (0..count).map(short_names));
            pairs.run(connection)?;
            let before = connection.cpu_seconds()?;
            pairs.run(connection)?;
            let us = (connection.cpu_seconds()? - before) * 1e6 / count as f64;
            let bytes = bytes_per_lock(connection, lock, count, short_names)?;
            let mut row = results.round(&version, lock.name, round);
            row.add("CPU, pair", "us", us)
                .add("memory of a held lock", "bytes", bytes);
        }
    }
    Ok(())
}
