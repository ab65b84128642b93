//! What a client sent, for an error or a log line.

use std::fmt;

/// Longer ones are cut.
const MAX_BYTES: usize = 64;

/// The start of a long name, printable.
pub(crate) struct Shortened<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..MAX_BYTES) {
            Some(start) if start.len() < self.0.len() => write!(f, "{}...", start.escape_ascii()),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}
