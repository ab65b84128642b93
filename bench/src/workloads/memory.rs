//! Memory of a held lock, including the module's expiry index.

use std::thread;
use std::time::Duration;

use crate::Result;
use crate::implementations::command::{Implementation, Names, Requests, short_names};
use crate::resp::Connection;
use crate::results::stats::Stats;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;

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
    ("key names of 40 bytes", |number| Names {
        key: long_key(number),
        ..short_names(number)
    }),
    ("owner names of 36 bytes, like a UUID", |number| Names {
        owner: uuid(number),
        ..short_names(number)
    }),
    ("long key and owner names", |number| Names {
        key: long_key(number),
        owner: uuid(number),
    }),
];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (dlock, set) = (Implementation::dlock(), Implementation::set_and_del());
    let shapes = if bench.quick {
        &NAME_SHAPES[..1]
    } else {
        &NAME_SHAPES
    };
    for &(description, names) in shapes {
        bench.progress.step("memory", description);
        let dlock_bytes = bytes_per_lock(&dlock, names)?;
        let set_bytes = bytes_per_lock(&set, names)?;
        let bytes = |bytes| {
            Figure::new("memory of a held lock", Stats::of([bytes]))
                .unit("bytes")
                .case(description)
        };
        summary.add(bytes(dlock_bytes));
        summary.add(
            bytes(set_bytes)
                .of("SET NX PX")
                .ratio(Stats::of([dlock_bytes / set_bytes])),
        );
    }
    let ratio = summary.rows_of("memory").iter().find_map(|row| row.ratio);
    let ratio = ratio.ok_or("memory was not measured")?;
    let name = "a held lock / SET NX PX, short names";
    summary.add(
        Figure::new(name, Stats::of([ratio]))
            .case("as a ratio")
            .at_most(1.40),
    );
    summary.note(format!(
        "growth of used_memory over {LOCKS} locks, each on a fresh server"
    ));
    Ok(())
}

pub fn long_key(number: usize) -> String {
    format!("lock:{number:035}")
}

fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
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
