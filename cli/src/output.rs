//! Messages on standard error, and styled text on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

pub const BOLD: Style = Style::new().bold();
pub const RED: Style = AnsiColor::Red.on_default();
pub const GREEN: Style = AnsiColor::Green.on_default();
pub const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Prints a message on standard error in a single write.
pub fn eprint_error(message: &str) {
    let _ = io::stderr().write_all(format!("dlock: {message}\n").as_bytes());
}

/// Standard output, which drops styles unless it is a terminal that supports them, and NO_COLOR is empty.
pub fn stdout() -> BufWriter<AutoStream<StdoutLock<'static>>> {
    BufWriter::new(anstream::stdout().lock())
}

/// Text in a style.
pub fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
