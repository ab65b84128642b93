//! COMMAND GETKEYS and GETKEYSANDFLAGS of a GUARD.

use dlock_testkit::start;

#[test]
fn lock_alone_is_reported_whatever_guard_runs() {
    let (_server, mut client) = start();
    let long: String = (0..2_000).map(|n| format!(" k{n} {n}")).collect();
    for inner in [
        "",
        "GET data",
        "SET data 1",
        "RENAME a b",
        "GET",
        "NONSENSE a",
        "EVAL script 1 data",
        "DLOCK.GUARD gate bob 1 SET data 1",
        &format!("MSET{long}"),
    ] {
        let guard = format!("DLOCK.GUARD door alice 1 {inner}");
        let keys: Vec<String> = client.ask(&format!("COMMAND GETKEYS {guard}"));
        assert_eq!(keys, ["door"], "{inner}");
        let keys: Vec<(String, Vec<String>)> = client.ask(&format!("COMMAND GETKEYSANDFLAGS {guard}"));
        let flags = ["RO", "access"].map(str::to_owned).to_vec();
        assert_eq!(keys, [("door".to_owned(), flags)], "{inner}");
    }
}
