//! Memory of a held lock, including the module's expiry index.

use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::implementations::command::{Implementation, Names, Requests, short_names};
use crate::implementations::plain_key::set_and_del;
use crate::resp::Connection;
use crate::results::DLOCK;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

const LOCKS: usize = 200_000;

/// Hash tables grow incrementally, in the background too, so `used_memory` is read once it is stable.
const STABLE_SAMPLES: u32 = 4;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SAMPLES: u32 = 100;
/// What the server itself allocates and frees meanwhile.
const NOISE_BYTES: f64 = 16_384.0;

/// A description of names, and how to generate them.
type NameShape = (&'static str, fn(usize) -> Names);

const NAME_SHAPES: [NameShape; 4] = [
    ("lock:000123, owner-000123", short_names),
    ("key names of 40 bytes", long_key_names),
    ("owner names of 36 bytes, like a UUID", |number| {
        with_uuid(short_names(number), number)
    }),
    ("long key and owner names", |number| {
        with_uuid(long_key_names(number), number)
    }),
];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    for &(description, names) in &NAME_SHAPES[..bench.rounds(NAME_SHAPES.len(), 1)] {
        bench.progress.step("memory", description);
        let both = [Implementation::dlock(), set_and_del()];
        let both = Comparison::in_turns(vec![DLOCK, "SET NX PX"], 1, |_, index| {
            bytes_per_lock(&both[index], names)
        })?;
        both.add(summary, description, "memory of a held lock", "bytes", |bytes| {
            *bytes
        });
        if description == NAME_SHAPES[0].0 {
            let ratio = Figure::new(
                "a held lock / SET NX PX, short names",
                both.ratio(1, |bytes| *bytes),
            );
            summary.add(ratio.case("as a ratio").at_most(1.3));
        }
    }
    summary.note(format!(
        "growth of used_memory over {LOCKS} locks, each on a fresh server"
    ));
    Ok(())
}

pub fn long_key_names(number: usize) -> Names {
    Names {
        key: format!("lock:{number:035}"),
        ..short_names(number)
    }
}

fn with_uuid(names: Names, number: usize) -> Names {
    Names {
        owner: format!("{number:08x}-0000-4000-8000-{number:012x}"),
        ..names
    }
}

fn bytes_per_lock(implementation: &Implementation, names: fn(usize) -> Names) -> Result<f64> {
    let server = Server::start()?;
    let connection = &mut server.connect()?;
    let acquires = Requests::of((0..LOCKS).map(|number| (&implementation.acquire, names(number))));
    let before = used_memory(connection)?;
    acquires.run(connection)?;
    let after = used_memory(connection)?;
    Ok((after - before) / LOCKS as f64)
}

pub fn used_memory(connection: &mut Connection) -> Result<f64> {
    let mut memory = connection.info_number("memory", "used_memory")?;
    let mut stable = 0;
    for _ in 0..MAX_SAMPLES {
        thread::sleep(SAMPLE_INTERVAL);
        let now = connection.info_number("memory", "used_memory")?;
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
