//! Messages on standard error, and colors on standard output.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal, Write};

/// Prints a message on standard error in a single write.
pub fn eprint_error(message: &str) {
    let _ = io::stderr().write_all(format!("dlock: {message}\n").as_bytes());
}

/// Colors text when standard output is a terminal that supports it.
#[derive(Clone, Copy)]
pub struct Painter {
    enabled: bool,
}

#[derive(Clone, Copy)]
pub enum Color {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Painter {
    pub fn for_stdout() -> Self {
        let disabled = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            enabled: io::stdout().is_terminal() && !disabled && !dumb,
        }
    }

    pub fn plain() -> Self {
        Self { enabled: false }
    }

    pub fn paint<'a>(&self, color: Color, text: &'a str) -> Cow<'a, str> {
        if self.enabled {
            format!("\x1b[{}m{text}\x1b[0m", color as u8).into()
        } else {
            text.into()
        }
    }
}
