//! A fenced write: GUARD beside the plain command, and beside a script that checks the holder of a plain lock.

use crate::error::Result;
use crate::locks::{BATCH, Command, LEASE, Requests, fence_of, short_names};
use crate::results::Results;
use crate::scale::{Scale, turns};
use crate::server::{SETTINGS, Server};
use crate::wire::Connection;

const PLAIN: &str = "SET";
const GUARD: &str = "GUARD SET";
const SCRIPT: &str = "EVALSHA: GET the holder, SET";

/// Compares the token of a plain lock, then writes.
const CHECK_AND_SET: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("SET", KEYS[2], ARGV[2])
else
	return redis.error_reply("NOTHELD")
end"#;

const WRITES: usize = 200 * BATCH;
const ROUNDS: usize = 5;

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    for setting in SETTINGS {
        let server = Server::in_setting(setting)?;
        let connection = &mut server.connect()?;
        let writes = writes(connection)?;
        let count = scale.count(WRITES);
        for (round, index) in turns(scale.rounds(ROUNDS), writes.len()) {
            let (name, command) = &writes[index];
            let requests = Requests::of(&[command], (0..count).map(short_names));
            let before = connection.cpu_seconds()?;
            requests.run(connection)?;
            let us = (connection.cpu_seconds()? - before) * 1e6 / count as f64;
            results.round(setting.0, name, round).add("CPU", "us", us);
        }
    }
    Ok(())
}

/// The same write of 9 bytes in three ways. The holder is in place.
fn writes(connection: &mut Connection) -> Result<[(&'static str, Command); 3]> {
    let grant = connection.ask(&["DLOCK.ACQUIRE", "lock:000001", "owner-000001", LEASE])?;
    let fence = fence_of(&grant)?.to_string();
    connection.call(&["SET", "lock:000002", "owner-000001"])?;
    let script: String = connection.ask(&["SCRIPT", "LOAD", CHECK_AND_SET])?;
    let guard = ["DLOCK.GUARD", "lock:000001", "owner-000001", &fence];
    let set = ["SET", "data:000001", "value-001"];
    let eval = [
        "EVALSHA",
        &script,
        "2",
        "lock:000002",
        "data:000001",
        "owner-000001",
        "value-001",
    ];
    Ok([
        (GUARD, Command::new(&[&guard[..], &set].concat())),
        (PLAIN, Command::new(&set)),
        (SCRIPT, Command::new(&eval)),
    ])
}
