//! An uncontended pair and memory on each server of the test matrix.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::contenders::command::{Contender, Requests, short_names};
use crate::results::spread::Spread;
use crate::results::table::{Figure, Summary};
use crate::server::{Server, version_of};
use crate::works::Bench;
use crate::works::memory::used_memory;
use crate::works::pairs::{self, Beside, Pairs};

/// In the folder of each server, as the script that fetches them leaves it.
const PROGRAM: &str = "redis-server";
/// The ids that it could not get.
const MISSING: &str = "missing";

/// What one round showed of one contender.
struct Sample {
    /// Of a pair, in microseconds.
    cpu: f64,
    /// Of a held lock, in bytes.
    memory: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let Some(folder) = &bench.servers else {
        summary.note(
            "not measured: `--servers DIR` names the folder that `tests/matrix/fetch-servers DIR` has filled",
        );
        return Ok(());
    };
    let (pairs, rounds) = (bench.rounds(100_000, 50_000), bench.rounds(3, 1));
    for program in programs(folder)? {
        run(bench, &program, pairs, rounds, summary)?;
    }
    let missing = fs::read_to_string(folder.join(MISSING)).unwrap_or_default();
    for id in missing.lines() {
        summary.note(format!("{id} could not be fetched"));
    }
    Ok(())
}

/// In the order of their names.
fn programs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let programs = entries.flatten().map(|entry| entry.path().join(PROGRAM));
    let mut programs: Vec<_> = programs.filter(|program| program.is_file()).collect();
    programs.sort();
    if programs.is_empty() {
        let shown = folder.display();
        return Err(format!("no server in {shown}: run `tests/matrix/fetch-servers {shown}`").into());
    }
    Ok(programs)
}

fn run(bench: &Bench, program: &Path, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    let program = program.to_str().ok_or("a path that is no text")?;
    let name = short_version(&version_of(program)?);
    bench.progress.step("servers", &name);
    let rounds = pairs::rounds(rounds, |contender| {
        sample(&bench.module, program, contender, pairs)
    })?;
    let cpu = |round: &Beside<Sample>| (round.dlock.cpu, round.set.cpu);
    let memory = |round: &Beside<Sample>| (round.dlock.memory, round.set.memory);
    add(
        summary,
        &name,
        ["CPU of a pair, dlock", "SET + DEL"],
        "us",
        rounds.iter().map(cpu),
    );
    add(
        summary,
        &name,
        ["memory, dlock", "SET PX"],
        "bytes",
        rounds.iter().map(memory),
    );
    Ok(())
}

/// A column for each, and one for their ratio.
fn add(
    summary: &mut Summary,
    server: &str,
    [dlock, set]: [&str; 2],
    unit: &'static str,
    values: impl Iterator<Item = (f64, f64)> + Clone,
) {
    let mut add = |metric: &str, unit, value: Spread| {
        summary.add(Figure::new(metric, value).unit(unit).of(server));
    };
    add(dlock, unit, Spread::of(values.clone().map(|(dlock, _)| dlock)));
    add(set, unit, Spread::of(values.clone().map(|(_, set)| set)));
    add(
        &format!("to {set}"),
        "",
        Spread::of(values.map(|(dlock, set)| dlock / set)),
    );
}

fn sample(module: &Path, program: &str, contender: &Contender, pairs: usize) -> Result<Sample> {
    let server = Server::start_program(program, module, &[])?;
    let connection = &mut server.connect()?;
    let all = Pairs::pipelined(contender, pairs);
    all.run(connection)?;
    let cpu = all.cost(connection)?.cpu;
    let before = used_memory(connection)?;
    Requests::of((0..pairs).map(|number| (&contender.acquire, short_names(number)))).run(connection)?;
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
    use crate::works::testing::bench;

    #[test]
    fn the_name_is_short() {
        let version = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1";
        assert_eq!(short_version(version), "Valkey 9.1.2");
    }

    #[test]
    fn each_server_of_a_folder_is_found_and_an_empty_folder_says_how_to_fill_it() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let error = programs(folder.path()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("fetch-servers")));
        for id in ["b", "a"] {
            fs::create_dir(folder.path().join(id))?;
            symlink("/bin/true", folder.path().join(id).join(PROGRAM))?;
        }
        fs::write(folder.path().join(MISSING), "")?;
        let ids = ["a", "b"].map(|id| folder.path().join(id).join(PROGRAM));
        assert_eq!(programs(folder.path())?, ids);
        Ok(())
    }

    #[test]
    fn a_server_has_a_row_of_six_figures() -> Result<()> {
        let mut summary = Summary::default();
        let program = std::env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        run(&bench(), Path::new(&program), 2_000, 1, &mut summary)?;
        let rows = summary.rows();
        assert_eq!(rows.len(), 6);
        // Both are keys with a name of eleven bytes.
        let memory = rows.iter().filter(|row| row.unit == "bytes");
        assert!(
            memory.clone().all(|row| (30.0..1_000.0).contains(&row.median)),
            "{rows:?}"
        );
        Ok(())
    }

    #[test]
    fn without_a_folder_a_note_says_how_to_get_it() -> Result<()> {
        let mut summary = Summary::default();
        measure(&bench(), &mut summary)?;
        assert!(summary.rows().is_empty());
        assert!(
            summary
                .notes()
                .iter()
                .any(|(_, note)| note.contains("--servers DIR"))
        );
        Ok(())
    }
}
