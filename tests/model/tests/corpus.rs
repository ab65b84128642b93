//! What the fuzzers have found worth keeping, fed to the same functions: no nightly compiler, no fuzzer.

use std::fs;
use std::path::Path;

use dlock_model::fuzz;

/// Feeds it all files of a target's corpus.
fn replay(target: &str, feed: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut fed = 0;
    for entry in entries {
        let path = entry.expect("an entry of the folder").path();
        // A panic does not say which file it was.
        println!("{}", path.display());
        feed(&fs::read(&path).expect("a readable file"));
        fed += 1;
    }
    assert!(fed >= 10, "only {fed} files in {}", folder.display());
}

#[test]
fn any_arguments_are_refused_or_read_within_their_ranges() {
    replay("arguments", fuzz::arguments);
}

#[test]
fn any_payload_is_refused_or_makes_a_lock_that_is_written_the_same() {
    replay("payload", fuzz::payload);
}

#[test]
fn any_replication_commands_leave_a_sound_lock() {
    replay("replication", fuzz::replication);
}

#[test]
fn in_any_sequence_of_requests_every_waiter_gets_one_answer() {
    replay("sequence", fuzz::sequence);
}
