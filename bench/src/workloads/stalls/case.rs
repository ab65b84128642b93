//! What all cases have in common.

use crate::error::Result;
use crate::scale::Scale;
use crate::wire::Connection;

/// A name, and the milliseconds of one attempt.
pub type Case = (&'static str, fn(&Scale) -> Result<f64>);

/// The milliseconds that the server spent in a command since the last reset.
pub fn spent_ms(control: &mut Connection, name: &str) -> Result<f64> {
    Ok(control.command_stat(name, "usec")? / 1e3)
}
