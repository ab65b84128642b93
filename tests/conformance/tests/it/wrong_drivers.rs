//! The scenarios find what they are meant to find: each of these mistakes, made in a copy of the library for Python,
//! fails one of them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use dlock_conformance::run::run_level;
use dlock_conformance::scenario::{Fields, Level};
use dlock_testkit::client_libraries::{copy_files, ours};
use dlock_testkit::skip;
use serde_json::Value;
use tempfile::TempDir;

use crate::drivers::python_sync_with;

/// A mistake in the library, as a change of one file.
struct Mistake {
    file: String,
    right: String,
    wrong: String,
    /// The scenario that fails, and what its error says.
    scenario: String,
    error: String,
}

impl Mistake {
    fn named(name: &str) -> Self {
        let mistakes: Value =
            serde_json::from_str(include_str!("../../mistakes.json")).expect("the file is JSON");
        let mut fields = Fields::of(mistakes[name].clone()).expect("the file has this mistake");
        let mut text = |name| fields.take_text(name).expect("a mistake has all fields");
        Self {
            file: text("file"),
            right: text("right"),
            wrong: text("wrong"),
            scenario: text("scenario"),
            error: text("error"),
        }
    }

    fn make_in(&self, source: &Path) {
        let file = source.join(&self.file);
        let code = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(
            code.matches(&self.right).count(),
            1,
            "the library has changed: adapt mistakes.json. `{}` must stand in {} once",
            self.right,
            self.file
        );
        fs::write(file, code.replace(&self.right, &self.wrong)).expect("the copy is writable");
    }
}

/// Makes a mistake and runs its scenario, which must fail.
#[track_caller]
fn assert_found(name: &str) {
    let mistake = Mistake::named(name);
    let copy = TempDir::with_prefix("dlock-mistake-").expect("a temporary directory can be made");
    copy_files(&ours("python"), &[OsString::from("src")], copy.path());
    let source = copy.path().join("src");
    mistake.make_in(&source);
    let launch = match python_sync_with(&source) {
        Ok(launch) => launch,
        Err(reason) => return skip(&reason),
    };
    let levels = Level::ALL.into_iter();
    let is_chosen = |name: &str| name == mistake.scenario;
    let mut verdicts = levels.flat_map(|level| run_level(level, is_chosen, &launch));
    let verdict = verdicts.next().expect("the scenario exists");
    match verdict.outcome {
        Some(Err(error)) if error.contains(&mistake.error) => {}
        other => panic!(
            "{}: expected `{}`, got {other:?}",
            verdict.scenario, mistake.error
        ),
    }
}

#[test]
fn driver_without_deadline_fails() {
    assert_found("no deadline");
}

#[test]
fn driver_that_renews_after_the_release_fails() {
    assert_found("renewal after release");
}

#[test]
fn driver_that_forgets_cancelled_requests_fails() {
    assert_found("nothing given back on cancellation");
}

#[test]
fn driver_with_new_request_id_for_a_retry_fails() {
    assert_found("new request id for a retry");
}

#[test]
fn driver_that_repeats_nothing_after_a_lost_connection_fails() {
    assert_found("nothing repeated after a lost connection");
}

#[test]
fn driver_that_ignores_a_loss_fails() {
    assert_found("loss ignored");
}

#[test]
fn driver_that_unlocks_without_its_owner_fails() {
    assert_found("unlock without owner");
}

#[test]
fn driver_that_asks_without_end_for_a_lease_that_is_too_short_fails() {
    assert_found("late grants without end");
}

#[test]
fn driver_that_calls_silence_taken_fails() {
    assert_found("silence called taken");
}

#[test]
fn driver_that_does_not_know_a_word_fails() {
    assert_found("word not repeated");
}

#[test]
fn driver_that_repeats_a_query_fails() {
    assert_found("query repeated");
}

#[test]
fn driver_that_does_not_say_why_a_lock_is_lost_fails() {
    assert_found("loss without its cause");
}

#[test]
fn driver_that_does_not_check_a_time_fails() {
    assert_found("time not checked");
}

#[test]
fn driver_that_sends_one_request_at_a_time_fails() {
    assert_found("one request at a time");
}

#[test]
fn driver_whose_waiters_all_ask_for_the_holder_fails() {
    assert_found("each waiter asks for the holder");
}
