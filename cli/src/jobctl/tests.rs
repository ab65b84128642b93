use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::*;

/// Lost after some time, or never.
struct Lasting(Option<Duration>);

impl Protection for Lasting {
    async fn lost(&self) -> String {
        match self.0 {
            Some(time) => tokio::time::sleep(time).await,
            None => pending().await,
        }
        "it is over".to_owned()
    }

    fn is_lost(&self) -> bool {
        self.0.is_some_and(|time| time.is_zero())
    }
}

/// Runs a shell script to its end: its exit code, and the loss that was reported.
fn run(script: &str, lasting: Option<Duration>, on_lost: OnLost) -> (ExitCode, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let stderr = StderrWriter::start().unwrap();
        let mut signals = Signals::listen().unwrap();
        let words = ["sh", "-c", script].map(OsString::from);
        let env = [("GIVEN", Some(OsStr::new("7"))), ("HOME", None)];
        let job = Job::start(&words, &env).unwrap_or_else(|failure| panic!("{}", failure.message));
        let rules = Rules {
            what: "the permit".to_owned(),
            on_lost,
            kill_after: Duration::from_millis(100),
        };
        Supervisor::new(rules, &Lasting(lasting), job, stderr.sender())
            .wait_for_exit(&mut signals)
            .await
    })
}

const SOON: Option<Duration> = Some(Duration::from_millis(100));

#[test]
fn exit_code_or_signal_of_command_is_passed_on() {
    let cases = [
        ("exit 3", 3),
        ("kill -9 $$", 128 + 9),
        ("exit $GIVEN", 7),
        ("exit ${HOME:-5}", 5),
    ];
    for (script, code) in cases {
        assert_eq!(
            run(script, None, OnLost::Kill),
            (ExitCode::from(code), None),
            "{script}"
        );
    }
}

#[test]
fn loss_kills_terminates_or_spares_the_command() {
    let loss = Some("it is over".to_owned());
    let trap = "trap 'exit 6' TERM; while :; do sleep 0.01; done";
    let stubborn = "trap '' TERM; while :; do sleep 0.01; done";
    let cases = [
        (trap, OnLost::Kill, 128 + 9),
        (trap, OnLost::Term, 6),
        (stubborn, OnLost::Term, 128 + 9),
        ("sleep 0.3; exit 2", OnLost::Ignore, 2),
    ];
    for (script, on_lost, code) in cases {
        let (start, expected) = (Instant::now(), (ExitCode::from(code), loss.clone()));
        assert_eq!(run(script, SOON, on_lost), expected, "{script} {on_lost:?}");
        assert!(start.elapsed() < Duration::from_secs(10), "{script} {on_lost:?}");
    }
}
