//! The corpus of the fuzzer, run without a fuzzer or a nightly compiler.

use std::fs;
use std::path::Path;

use dlock_model::fuzz;

/// Runs a fuzz target with every input of its corpus: a line each, in hexadecimal, and perhaps a name.
fn replay(target: &str, run: fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/corpus/{target}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut inputs = 0;
    for line in text.lines() {
        // A panic does not name the input.
        println!("{target}: {line}");
        let hex = line.split(' ').next().unwrap_or_default();
        run(&bytes(hex));
        inputs += 1;
    }
    assert!(inputs >= 10, "only {inputs} inputs in {}", path.display());
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs
        .map(|pair| byte(pair).unwrap_or_else(|| panic!("not hexadecimal: {hex}")))
        .collect()
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
fn every_short_sequence_of_inboxes_gives_every_request_one_answer() {
    every_sequence_of_inboxes(4);
}

#[test]
#[ignore = "minutes in a release build: make model"]
fn every_longer_sequence_of_inboxes_gives_every_request_one_answer() {
    every_sequence_of_inboxes(6);
}

/// All sequences of this many steps, each as the bytes of the fuzz target, after the first call of a reader.
fn every_sequence_of_inboxes(length: u32) {
    let steps: [&[u8]; 13] = [
        // ACQUIRE: owner, request id, inbox, timeout, QUEUE or BLOCK, lease.
        &[0, 0, 0, 0, 0, 0, 2],
        &[0, 1, 0, 0, 0, 0, 2],
        &[0, 1, 1, 0, 1, 0, 0],
        &[0, 2, 0, 0, 0, 3, 1],
        // RELEASE: owner, holds.
        &[6, 0, 0],
        &[6, 1, 2],
        // GRANTS: inbox, which cursor, BLOCK, TTL.
        &[8, 0, 0, 0, 1],
        &[8, 0, 3, 0, 0],
        &[8, 0, 3, 1, 0],
        // The reader is gone; time passes; the server follows another one.
        &[12, 0],
        &[14, 160, 0],
        &[14, 60, 3],
        &[13],
    ];
    for number in 0..steps.len().pow(length) {
        let sequence = (0..length).map(|place| steps[number / steps.len().pow(place) % steps.len()]);
        let all: Vec<&[u8]> = std::iter::once(steps[6]).chain(sequence).collect();
        fuzz::inboxes(&all.concat());
    }
}

#[test]
fn corpus_payload_is_rejected_or_round_trips() {
    replay("payload", fuzz::payload);
}
