//! What `make test` says at its end.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::support::page;
use crate::support::run;

/// A skipped test reports that, and then passes for cargo.
const LOG: &str = "\
running 4 tests
skipped: a::first: no etcd
test a::first ... ok
test a::second ... skipped: b::third: no etcd
ok
skipped in part: a::fourth: no TLS
test a::fourth ... ok
test result: ok. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s
";

#[test]
fn skipped_tests_are_not_counted_as_passed() {
    let directory = TempDir::new().expect("a temporary directory");
    let log = directory.path().join("log");
    fs::write(&log, LOG).expect("the directory is writable");
    let summary = run(Command::new("tests/summarize").arg(&log), &page::root()).expect("it runs");
    let lines: Vec<&str> = summary.lines().filter(|line| !line.is_empty()).collect();
    let [etcd, tls, ignored, total] = lines[..] else {
        panic!("{summary}");
    };
    assert_eq!(etcd, "skipped: 2: no etcd");
    assert_eq!(tls, "skipped: 1: no TLS (a part of the test)");
    assert!(ignored.starts_with("ignored: "), "{ignored}");
    assert!(
        total.starts_with("test: 5 passed, 1 failed, 2 ignored, 2 skipped"),
        "{total}"
    );
}
