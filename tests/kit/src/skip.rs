use std::io::{Write as _, stderr};
use std::thread;

/// Reports that this test does not run here. The test runner counts it as passed, and does not capture the line:
/// `tests/summarize` counts it as skipped.
pub fn skip(reason: &str) {
    report("skipped", reason);
}

/// Reports that a part of this test does not run here.
pub fn skip_part(reason: &str) {
    report("skipped in part", reason);
}

fn report(what: &str, reason: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    // One write: tests run in parallel. Nothing to do about a closed stderr.
    let _ = stderr().write_all(format!("{what}: {test}: {reason}\n").as_bytes());
}
