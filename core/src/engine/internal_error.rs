//! States that are impossible, as far as we know.

use super::counters::increment;
use super::host::{Level, Process};

/// Counts such a state, and logs the first of its kind. Tests fail.
#[cold]
pub fn internal_error(process: &mut impl Process, what: &'static str) {
    let state = process.state();
    increment(&mut state.counters.internal_errors);
    if !state.logged_errors.contains(&what) {
        state.logged_errors.push(what);
        process.log(
            Level::Warning,
            &format!("internal error, please report it: {what}"),
        );
    }
    debug_assert!(false, "{what}");
}
