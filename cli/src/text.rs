//! Names and owners as printable text.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A name that is safe to print: control characters, invisible characters and invalid UTF-8 as `\xNN`, an
/// empty name in quotes.
pub fn display_name(name: &[u8]) -> String {
    if name.is_empty() {
        return "\"\"".to_owned();
    }
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

/// An owner as people need it. The client library names owners `host:pid:random`: the random part is left out.
pub fn short_owner(owner: &[u8]) -> String {
    let text = display_name(owner);
    match text.rsplit_once(':') {
        Some((process, random))
            if process.contains(':')
                && random.len() >= 16
                && random.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            process.to_owned()
        }
        _ => text,
    }
}

/// Modules have one number as their version: 100 * (100 * major + minor) + patch.
pub fn module_version_text(version: u64) -> String {
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    format!("{major}.{minor}.{patch}")
}

/// Two hexadecimal digits per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse of [`to_hex`].
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.chunks(2).map(pair).collect()
}

/// Zero-width characters, bidirectional controls and line separators.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// At most `width` columns of a terminal, with an ellipsis in the middle of a longer text.
pub fn truncate_middle(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(1) else {
        return "".into();
    };
    let fitting = |chars: &mut dyn Iterator<Item = char>, columns: usize| -> String {
        let mut used = 0;
        let is_fitting = |c: &char| {
            used += c.width().unwrap_or(0);
            used <= columns
        };
        chars.take_while(is_fitting).collect()
    };
    let head = fitting(&mut text.chars(), left / 2);
    let tail = fitting(&mut text.chars().rev(), left - left / 2);
    (head + "…" + &tail.chars().rev().collect::<String>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_control_characters_is_escaped() {
        assert_eq!(display_name(b"orders:42"), "orders:42");
        assert_eq!(display_name("käse".as_bytes()), "käse");
        assert_eq!(display_name(b"a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
        assert_eq!(display_name(b"\xff\\"), "\\xff\\\\");
        assert_eq!(display_name(b""), "\"\"");
        assert_eq!(display_name("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }

    #[test]
    fn random_part_of_owner_is_left_out() {
        assert_eq!(short_owner(b"web-3:2211:f455fa68f1e233c0"), "web-3:2211");
        assert_eq!(short_owner(b"web-3:2211"), "web-3:2211");
        assert_eq!(short_owner(b"orders:f455fa68f1e233c0"), "orders:f455fa68f1e233c0");
    }

    #[test]
    fn long_text_is_truncated_in_the_middle() {
        assert_eq!(truncate_middle("short", 5), "short");
        assert_eq!(truncate_middle("0123456789", 5), "01…89");
        assert_eq!(truncate_middle("東京大阪", 6), "東…阪");
        assert_eq!(truncate_middle("0123456789", 2), "…9");
        assert_eq!(truncate_middle("0123456789", 0), "");
    }
}
