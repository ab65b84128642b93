//! CPU of an uncontended pair and memory of a held lock on each server of the test matrix.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::implementations::command::{Implementation, Requests, short_names};
use crate::results::table::{Figure, Summary};
use crate::server::{Server, version_of};
use crate::workloads::bench::Bench;
use crate::workloads::memory::used_memory;
use crate::workloads::pairs::{Pairs, compare};

/// Inside the directory of each server.
const PROGRAM: &str = "redis-server";
/// Lists the servers that could not be downloaded.
const MISSING: &str = "missing";

/// Results of one round for one implementation.
struct Sample {
    /// Per pair, in microseconds.
    cpu: f64,
    /// Per held lock, in bytes.
    memory: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let Some(directory) = &bench.servers else {
        summary.note("not measured: run `tests/matrix/fetch-servers DIR`, then pass `--servers DIR`");
        return Ok(());
    };
    let (pairs, rounds) = (bench.rounds(100_000, 50_000), bench.rounds(3, 1));
    for program in programs(directory)? {
        run(bench, &program, pairs, rounds, summary)?;
    }
    let missing = fs::read_to_string(directory.join(MISSING)).unwrap_or_default();
    for id in missing.lines() {
        summary.note(format!("{id} could not be downloaded"));
    }
    Ok(())
}

/// Sorted by name.
fn programs(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let programs = entries.flatten().map(|entry| entry.path().join(PROGRAM));
    let mut programs: Vec<_> = programs.filter(|program| program.is_file()).collect();
    programs.sort();
    if programs.is_empty() {
        let shown = directory.display();
        return Err(format!("no servers in {shown}: run `tests/matrix/fetch-servers {shown}`").into());
    }
    Ok(programs)
}

fn run(bench: &Bench, program: &Path, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    let program = program
        .to_str()
        .ok_or("the path of the server is not valid UTF-8")?;
    let name = short_version(&version_of(program)?);
    bench.progress.step("servers", &name);
    let both = compare(rounds, |implementation| sample(program, implementation, pairs))?;
    // A column each, and one for the ratio.
    let mut add = |names: [&str; 3], unit, of: fn(&Sample) -> f64| {
        let values = [
            (both.stats(0, of), unit),
            (both.stats(1, of), unit),
            (both.ratio(1, of), ""),
        ];
        for (metric, (value, unit)) in names.into_iter().zip(values) {
            summary.add(Figure::new(metric, value).unit(unit).of(name.as_str()));
        }
    };
    add(
        ["CPU per pair, dlock", "SET + DEL", "/ SET + DEL"],
        "us",
        |sample| sample.cpu,
    );
    add(["memory, dlock", "SET PX", "/ SET PX"], "bytes", |sample| {
        sample.memory
    });
    Ok(())
}

fn sample(program: &str, implementation: &Implementation, pairs: usize) -> Result<Sample> {
    let server = Server::running(program, "")?;
    let connection = &mut server.connect()?;
    let all = Pairs::pipelined(implementation, pairs);
    all.run(connection)?;
    let cpu = all.cost(connection)?.cpu;
    let before = used_memory(connection)?;
    Requests::of((0..pairs).map(|number| (&implementation.acquire, short_names(number)))).run(connection)?;
    let memory = (used_memory(connection)? - before) / pairs as f64;
    Ok(Sample { cpu, memory })
}

/// `Redis 7.0.15` of what a server says of itself.
fn short_version(version: &str) -> String {
    let mut words = version.split_whitespace();
    let name = words.next().unwrap_or("?");
    let number = words.find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    format!("{name} {number}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workloads::testing::bench;

    #[test]
    fn server_version_is_shortened_to_name_and_number() {
        let version = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1";
        assert_eq!(short_version(version), "Valkey 9.1.2");
    }

    #[test]
    fn servers_directory_lists_servers_or_explains_how_to_fill_it() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let error = programs(directory.path()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("fetch-servers")));
        for id in ["b", "a"] {
            fs::create_dir(directory.path().join(id))?;
            symlink("/bin/true", directory.path().join(id).join(PROGRAM))?;
        }
        fs::write(directory.path().join(MISSING), "")?;
        let ids = ["a", "b"].map(|id| directory.path().join(id).join(PROGRAM));
        assert_eq!(programs(directory.path())?, ids);
        Ok(())
    }

    #[test]
    fn server_of_the_matrix_has_six_figures() -> Result<()> {
        let mut summary = Summary::default();
        let program = std::env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        run(&bench(), Path::new(&program), 2_000, 1, &mut summary)?;
        let rows = summary.figures;
        assert_eq!(rows.len(), 6);
        // Both have a key name of eleven bytes.
        let memory = rows.iter().filter(|row| row.unit == "bytes");
        assert!(
            memory.clone().all(|row| (30.0..1_000.0).contains(&row.median)),
            "{rows:?}"
        );
        Ok(())
    }

    #[test]
    fn servers_option_missing_leaves_a_note() -> Result<()> {
        let mut summary = Summary::default();
        measure(&bench(), &mut summary)?;
        assert!(summary.figures.is_empty());
        assert!(
            summary
                .notes
                .iter()
                .any(|(_, note)| note.contains("--servers DIR"))
        );
        Ok(())
    }
}
