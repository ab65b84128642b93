//! The clock of leases is the one that goes on while the machine is suspended.
//!
//! No test can suspend the machine, but a namespace of time shows which clock is asked: in it only the one
//! that counts suspend is somewhere else, as it is after a suspend.

use std::env;
use std::process::Command;
use std::time::Duration;

use redis_dlock_client::clock::BootInstant;

/// Tells the copy of this test in the namespace what the time is outside.
const OUTSIDE: &str = "DLOCK_TEST_MOMENT_OUTSIDE_US";
const SUSPENDED: Duration = Duration::from_secs(1_000_000);

fn since_boot() -> Duration {
    BootInstant::now().since(BootInstant::after_boot(Duration::ZERO))
}

#[test]
fn the_time_of_a_suspend_counts() {
    if let Ok(outside) = env::var(OUTSIDE) {
        let outside = Duration::from_micros(outside.parse().unwrap());
        assert!(since_boot() >= outside + SUSPENDED, "{:?}", since_boot());
        return;
    }
    let seconds = SUSPENDED.as_secs().to_string();
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--time", "--fork", "--boottime", &seconds]);
        command
    };
    if !unshare()
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("skipped: no namespace of time can be made here (unshare --user --time)");
        return;
    }
    let inside = unshare()
        .arg(env::current_exe().unwrap())
        .args(["--exact", "the_time_of_a_suspend_counts"])
        .env(OUTSIDE, since_boot().as_micros().to_string())
        .output()
        .unwrap();
    assert!(
        inside.status.success(),
        "{}",
        String::from_utf8_lossy(&inside.stdout)
    );
    assert!(String::from_utf8_lossy(&inside.stdout).contains("1 passed"));
}
