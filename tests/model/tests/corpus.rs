//! The corpus of the fuzzer, run without a fuzzer or a nightly compiler.

use std::fs;
use std::path::Path;

use dlock_model::fuzz;

/// Runs a fuzz target with all files of its corpus.
fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files = 0;
    for entry in entries {
        let path = entry.expect("an entry of the directory").path();
        // A panic does not name the file.
        println!("{}", path.display());
        run(&fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files >= 10, "only {files} files in {}", directory.display());
}

#[test]
fn corpus_announcement_leaves_fences_above_those_of_other_nodes() {
    replay("announcement", fuzz::announcement);
}

#[test]
fn corpus_arguments_are_rejected_or_within_range() {
    replay("arguments", fuzz::arguments);
}

#[test]
fn corpus_inboxes_give_every_request_one_answer() {
    replay("inboxes", fuzz::inboxes);
}

/// Without a corpus, too: the same random bytes each time.
#[test]
fn random_inboxes_give_every_request_one_answer() {
    let mut random = 1_u64;
    for _ in 0..3_000 {
        let mut bytes = Vec::new();
        for _ in 0..400 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((random >> 56) as u8);
        }
        fuzz::inboxes(&bytes);
    }
}

#[test]
fn corpus_payload_is_rejected_or_round_trips() {
    replay("payload", fuzz::payload);
}

#[test]
fn corpus_replication_leaves_lock_sound() {
    replay("replication", fuzz::replication);
}

#[test]
fn corpus_sequence_gives_every_waiter_one_reply() {
    replay("sequence", fuzz::sequence);
}
