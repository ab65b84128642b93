//! The scenarios find what they are meant to find: each of these mistakes, made in a copy of the library for Python,
//! fails one of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread;

use dlock_conformance::run::run_level;
use dlock_conformance::scenario::{Fields, Level};
use dlock_conformance::world::is_synchronous;
use dlock_testkit::client_libraries::{copy_files, ours};
use dlock_testkit::skip;
use serde_json::Value;
use tempfile::TempDir;

use crate::drivers::{python_sync, python_sync_with};

/// A mistake in the library, as a change of one file.
struct Mistake {
    name: String,
    file: String,
    right: String,
    wrong: String,
    /// The scenario that fails, and what its error says.
    scenario: String,
    error: String,
}

impl Mistake {
    fn all() -> Vec<Self> {
        let mistakes: BTreeMap<String, Value> =
            serde_json::from_str(include_str!("../../mistakes.json")).expect("the file is JSON");
        let mistake = |(name, fields): (String, Value)| {
            let mut fields = Fields::of(fields).expect("a mistake is an object");
            let mut text = |name| fields.take_text(name).expect("a mistake has all fields");
            Self {
                name,
                file: text("file"),
                right: text("right"),
                wrong: text("wrong"),
                scenario: text("scenario"),
                error: text("error"),
            }
        };
        mistakes.into_iter().map(mistake).collect()
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

/// Makes the mistake and runs its scenario, which must fail. The error says what was expected, if it does not.
fn find(mistake: &Mistake) -> Result<(), String> {
    let copy = TempDir::with_prefix("dlock-mistake-").expect("a temporary directory can be made");
    copy_files(&ours("python"), &[OsString::from("src")], copy.path());
    let source = copy.path().join("src");
    mistake.make_in(&source);
    let launch = python_sync_with(&source)?;
    let levels = Level::ALL.into_iter();
    let is_chosen = |name: &str| name == mistake.scenario;
    let mut verdicts = levels.flat_map(|level| run_level(level, is_chosen, &launch));
    let verdict = verdicts.next().expect("the scenario exists");
    match verdict.outcome {
        Some(Err(error)) if error.contains(&mistake.error) => Ok(()),
        other => Err(format!(
            "{}: expected `{}`, got {other:?}",
            mistake.name, mistake.error
        )),
    }
}

#[test]
fn every_mistake_fails_its_scenario() {
    if is_synchronous() {
        return skip("the errors are those of a primary that tells of grants at once");
    }
    if let Err(reason) = python_sync() {
        return skip(&reason);
    }
    let mistakes = Mistake::all();
    let failures = thread::scope(|scope| {
        let finding: Vec<_> = mistakes
            .iter()
            .map(|mistake| scope.spawn(|| find(mistake)))
            .collect();
        let found = finding.into_iter().map(|finding| finding.join());
        let found = found.map(|found| found.expect("it does not panic"));
        found.filter_map(Result::err).collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
