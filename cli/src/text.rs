//! Names on a terminal.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal;

/// A name as it can be shown: what a terminal could take for a command, and what is no text, as `\xNN`.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() || is_invisible(c) => {
                    escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes())
                }
                c => text.push(c),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// What changes the order or the look of the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// At most `width` characters of a text, the middle left out.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return text.into();
    }
    if width < 3 {
        return text.chars().take(width).collect::<String>().into();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let mut cut: String = text.chars().take(head).collect();
    cut.push('…');
    cut.extend(text.chars().skip(length - tail));
    cut.into()
}

/// Colours, where they are wanted.
#[derive(Clone, Copy)]
pub struct Paint {
    colours: bool,
}

#[derive(Clone, Copy)]
pub enum Colour {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Paint {
    /// For what is written to the standard output.
    pub fn for_output() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            colours: std::io::stdout().is_terminal() && !refused && !dumb,
        }
    }

    pub fn paint<'a>(&self, colour: Colour, text: &'a str) -> Cow<'a, str> {
        if self.colours {
            format!("\x1b[{}m{text}\x1b[0m", colour as u8).into()
        } else {
            text.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(shown(b"orders:42"), "orders:42");
        assert_eq!(shown("käse".as_bytes()), "käse");
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
        assert_eq!(shown(b"\xff\\"), "\\xff\\\\");
        assert_eq!(shown("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }

    #[test]
    fn a_long_name_keeps_both_its_ends() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("0123456789", 5), "01…89");
        assert_eq!(cut("0123456789", 2), "01");
        assert_eq!(cut("0123456789", 0), "");
    }
}
