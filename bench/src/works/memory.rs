//! What a held lock takes in the server's memory, the module's own registry included.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::contenders::command::{Contender, Names, Requests, short_names};
use crate::resp::Connection;
use crate::results::spread::Spread;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const LOCKS: usize = 200_000;

/// The keyspace grows step by step, in the background too: memory counts once it stands still.
const STILL_FOR: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: u32 = 100;
/// What the server itself takes and gives back meanwhile.
const NOISE_BYTES: f64 = 16_384.0;

/// Which names, and how they are made.
type Shape = (&'static str, fn(usize) -> Names);

const SHAPES: [Shape; 4] = [
    ("lock:000123, owner-000123", short_names),
    ("names of 40 bytes", |number| Names {
        key: long_key(number),
        ..short_names(number)
    }),
    ("owners like a UUID, 36 bytes", |number| Names {
        owner: uuid(number),
        ..short_names(number)
    }),
    ("both", |number| Names {
        key: long_key(number),
        owner: uuid(number),
    }),
];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (dlock, set) = (Contender::dlock(), Contender::set_and_del());
    let shapes = if bench.quick { &SHAPES[..1] } else { &SHAPES };
    for &(what, names) in shapes {
        bench.progress.step("memory", what);
        let ours = bytes_a_lock(&bench.module, &dlock, names)?;
        let theirs = bytes_a_lock(&bench.module, &set, names)?;
        let bytes = |bytes| {
            Figure::new("memory of a held lock", Spread::of([bytes]))
                .unit("bytes")
                .case(what)
        };
        summary.add(bytes(ours));
        summary.add(bytes(theirs).of("SET NX PX").ratio(Spread::of([ours / theirs])));
    }
    let ratio = summary.rows_of("memory").iter().find_map(|row| row.ratio);
    let ratio = ratio.ok_or("no memory was measured")?;
    let name = "a held lock / SET NX PX, short names";
    summary.add(
        Figure::new(name, Spread::of([ratio]))
            .case("as a ratio")
            .at_most(1.40),
    );
    summary.note(format!(
        "growth of used_memory over {LOCKS} locks, each time on a fresh server"
    ));
    Ok(())
}

pub fn long_key(number: usize) -> String {
    format!("lock:{number:035}")
}

fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

fn bytes_a_lock(module: &Path, contender: &Contender, names: fn(usize) -> Names) -> Result<f64> {
    let server = Server::start(module)?;
    let connection = &mut server.connect()?;
    let acquires = Requests::of((0..LOCKS).map(|number| (&contender.acquire, names(number))));
    let before = used_memory(connection)?;
    acquires.run(connection)?;
    let after = used_memory(connection)?;
    Ok((after - before) / LOCKS as f64)
}

pub fn used_memory(connection: &mut Connection) -> Result<f64> {
    let mut memory = connection.info_number("memory", "used_memory")?;
    let mut still = 0;
    for _ in 0..LOOKS {
        thread::sleep(LOOK_EVERY);
        let now = connection.info_number("memory", "used_memory")?;
        still = if (now - memory).abs() < NOISE_BYTES {
            still + 1
        } else {
            0
        };
        memory = now;
        if still == STILL_FOR {
            return Ok(memory);
        }
    }
    Err("used_memory does not stand still".into())
}
