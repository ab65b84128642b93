use std::io::{Write as _, stderr};
use std::thread;

/// Reports that this test, or a part of it, does not run here. The test runner does not capture the line, so that
/// `make test` can list what was skipped.
pub fn skip(reason: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    // One write: tests run in parallel. Nothing to do about a closed stderr.
    let _ = stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
}
