//! `dlock run --quorum`: a lock on a majority of servers.

use std::process::Command;

use crate::support::{Running, dlock, outcome, wait_until_free};
use dlock_testkit::{Server, WallClock, wait_for};

/// Its commands start and end with their input.
const PRINT_FENCE: &str = "echo $DLOCK_FENCE; cat";

struct Quorum(Vec<Server>);

impl Quorum {
    fn start() -> Self {
        Self((0..5).map(|_| Server::with("dlock.quorum yes")).collect())
    }

    /// `dlock run` of a shell script. A loss of the lock is noticed within the lease.
    fn run(&self, options: &[&str], script: &str) -> Command {
        self.run_for("3s", options, script)
    }

    fn run_for(&self, lease: &str, options: &[&str], script: &str) -> Command {
        let urls: Vec<String> = self.0.iter().map(Server::url).collect();
        let urls = urls.join(",");
        let start = ["run", "--quorum", &urls, "--lease", lease];
        let end = ["job", "--", "sh", "-c", script];
        dlock(&[&start, options, &end].concat())
    }

    fn kill(&mut self, servers: std::ops::Range<usize>) {
        self.0[servers].iter_mut().for_each(Server::kill);
    }
}

#[test]
fn command_keeps_lock_after_loss_of_two_of_five_servers() {
    let mut quorum = Quorum::start();
    let mut alice = Running::start(&mut quorum.run_for("12s", &[], PRINT_FENCE));
    let fence: u64 = alice.line().parse().expect("a fence");
    quorum.kill(0..2);
    let mut alive = quorum.0[2].client();
    let extended = alive.stat("dlock_extended");
    wait_for("renewals", || alive.stat("dlock_extended") >= extended + 2);
    let refused = outcome(&mut quorum.run(&["--wait", "2s"], "echo ran"));
    assert_eq!((refused.code, refused.out.as_str()), (75, ""), "{refused:?}");
    alice.finish().exits(0);
    let bob = outcome(&mut quorum.run(&[], "echo $DLOCK_FENCE"));
    assert_eq!(bob.code, 0, "{bob:?}");
    assert!(bob.out.trim().parse::<u64>().expect("a fence") > fence, "{bob:?}");
}

#[test]
fn command_is_killed_after_loss_of_majority() {
    let mut quorum = Quorum::start();
    let mut alice = Running::start(&mut quorum.run(&[], PRINT_FENCE));
    alice.line();
    quorum.kill(1..4);
    assert_eq!(alice.end().code, 79, "the lock is lost");
    // Her leases end a moment after she has stopped relying on them.
    for left in [0, 4] {
        wait_until_free(&mut quorum.0[left].client(), "job");
    }
    let refused = outcome(&mut quorum.run(&["--try"], "echo ran"));
    assert_eq!((refused.code, refused.out.as_str()), (69, ""), "{refused:?}");
    assert!(refused.err.contains(&address(&quorum.0[1])), "{refused:?}");
}

/// Fences are numbered by the clocks of the servers: those of clients do not matter, also for speed.
#[test]
fn clients_whose_clocks_differ_by_hours_have_rising_fences_in_one_round() {
    let quorum = Quorum::start();
    let clock = WallClock::new();
    let mut last = 0;
    for hours in [1, -1, 5, 0, -5] {
        clock.set(hours * 3_600);
        let mut date = Command::new("date");
        let date = outcome(date.arg("+%s").envs(clock.environment()));
        let skew = date.out.trim().parse::<i64>().expect("seconds") - unix_s();
        assert!((skew - hours * 3_600).abs() < 1_000, "the clock is off: {skew} s");
        let ran = outcome(
            quorum
                .run(&["--try"], "echo $DLOCK_FENCE")
                .envs(clock.environment()),
        );
        let fence: u64 = ran.out.trim().parse().expect("a fence");
        assert!(fence > last, "{fence} after {last}, {hours} h off");
        last = fence;
    }
    // At its end, the tool asks each server once for how long the lock was held.
    let extended = |server: &Server| {
        let mut client = server.client();
        client.calls("dlock.extend") - client.command_stat("dlock.extend", "failed_calls")
    };
    assert!(
        quorum.0.iter().map(extended).sum::<u64>() <= 5 * 5,
        "no fence was raised"
    );
}

fn unix_s() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    since.as_secs() as i64
}

#[test]
fn shared_lock_over_a_quorum_has_no_fence() {
    let quorum = Quorum::start();
    let print = "echo \"$DLOCK_OWNER:$DLOCK_FENCE\"; cat";
    let mut first = Running::start(quorum.run(&["--shared"], print).env("DLOCK_FENCE", "7"));
    assert!(first.line().ends_with(':'));
    let second = outcome(&mut quorum.run(&["--shared", "--try"], "true"));
    assert_eq!(second.code, 0, "{second:?}");
    let writer = outcome(&mut quorum.run(&["--try"], "true"));
    assert_eq!(writer.code, 75, "{writer:?}");
}

#[test]
fn options_that_a_quorum_cannot_keep_are_rejected() {
    let quorum = Quorum::start();
    for option in ["--limit=3", "--at-least=1s"] {
        let refused = outcome(&mut quorum.run(&[option], "echo ran"));
        assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
    }
    let mut elsewhere = quorum.run(&["-p", "1"], "echo ran");
    assert_eq!(outcome(&mut elsewhere).code, 64);
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}
