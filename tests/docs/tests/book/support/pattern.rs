//! Whether an output is what a page shows, given that clocks and counters are never the same twice.

use std::collections::BTreeMap;

/// Numbers of so many digits and more are fences.
const FENCE_DIGITS: usize = 12;
/// Numbers of so many digits and more, below those of fences, are times in milliseconds.
const TIME_DIGITS: usize = 3;
/// By so much may a time differ from the one on the page: a slow machine.
const SLOWNESS_MS: u64 = 20_000;

/// The fences that a page shows, and those that this run had instead.
#[derive(Default)]
pub struct Fences(BTreeMap<u64, u64>);

/// A piece of a line.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Fence(u64),
    TimeMs(u64),
    Text(&'a str),
}

impl Fences {
    /// Why `seen` is not what the page shows; `None`: it is.
    ///
    /// The same fence on the page must be the same in this run, and a larger one larger.
    pub fn difference(&mut self, shown: &str, seen: &str) -> Option<String> {
        let (mut shown_lines, mut seen_lines) = (shown.trim_end().lines(), seen.trim_end().lines());
        loop {
            match (shown_lines.next(), seen_lines.next()) {
                (None, None) => return None,
                (shown, seen) => {
                    let (shown, seen) = (shown.unwrap_or("(the end)"), seen.unwrap_or("(the end)"));
                    if !self.is_same_line(shown, seen) {
                        return Some(format!("the page shows   {shown}\nthis run has     {seen}"));
                    }
                }
            }
        }
    }

    /// A line of the page that ends with `...` is the beginning of a longer one.
    fn is_same_line(&mut self, shown: &str, seen: &str) -> bool {
        let beginning = shown
            .strip_suffix("...")
            .filter(|beginning| !beginning.is_empty());
        let (shown, mut seen) = (pieces(beginning.unwrap_or(shown)), pieces(seen));
        if beginning.is_some() {
            seen.truncate(shown.len());
        }
        shown.len() == seen.len()
            && shown.iter().zip(&seen).all(|pair| match pair {
                (Piece::Fence(shown), Piece::Fence(seen)) => self.learn(*shown, *seen),
                (Piece::TimeMs(shown), Piece::TimeMs(seen)) => shown.abs_diff(*seen) <= SLOWNESS_MS,
                (Piece::Text(shown), Piece::Text(seen)) => shown == seen,
                // A time can be short this time, and a short number long.
                (Piece::TimeMs(time), Piece::Text(text)) | (Piece::Text(text), Piece::TimeMs(time)) => text
                    .parse::<u64>()
                    .is_ok_and(|number| time.abs_diff(number) <= SLOWNESS_MS),
                _ => false,
            })
    }

    /// Whether this run's fence can be the one on the page, by its order among the others.
    fn learn(&mut self, shown: u64, seen: u64) -> bool {
        let smaller = self.0.range(..shown).next_back();
        let larger = self.0.range(shown + 1..).next();
        let fits = smaller.is_none_or(|(_, fence)| *fence < seen)
            && larger.is_none_or(|(_, fence)| seen < *fence)
            && self.0.get(&shown).is_none_or(|known| *known == seen);
        self.0.insert(shown, seen);
        fits
    }

    /// A command of the page, with the fences of this run.
    pub fn in_this_run(&self, command: &str) -> String {
        let mut command = command.to_owned();
        for (shown, seen) in &self.0 {
            command = command.replace(&shown.to_string(), &seen.to_string());
        }
        command
    }
}

/// Fences, times, and what is between them: words, single characters and short numbers. Spaces only separate.
fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() {
            length_of(rest, |char| char.is_ascii_digit())
        } else if first.is_alphabetic() {
            length_of(rest, char::is_alphanumeric)
        } else {
            first.len_utf8()
        };
        let (piece, behind) = rest.split_at(length);
        let number = piece.parse().ok();
        let (piece, length) = match number {
            Some(number) => number_of(number, piece, behind),
            None => (Piece::Text(piece), 0),
        };
        pieces.push(piece);
        rest = behind[length..].trim_start();
    }
    pieces
}

/// A number with the unit behind it, if there is one; and the length of that.
fn number_of<'a>(number: u64, digits: &'a str, behind: &str) -> (Piece<'a>, usize) {
    let unit = &behind[..length_of(behind, char::is_alphabetic)];
    match unit {
        "ms" => (Piece::TimeMs(number), unit.len()),
        "s" => (Piece::TimeMs(number * 1000), unit.len()),
        _ if digits.len() >= FENCE_DIGITS => (Piece::Fence(number), 0),
        _ if digits.len() >= TIME_DIGITS => (Piece::TimeMs(number), 0),
        _ => (Piece::Text(digits), 0),
    }
}

fn length_of(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|char| !belongs(char)).unwrap_or(text.len())
}

#[test]
fn times_may_differ_and_fences_keep_their_order() {
    let mut fences = Fences::default();
    assert_eq!(
        fences.difference(
            "1) (integer) 186715812864001\n2) 1 30000",
            "1) (integer) 5000000000001\n2) 1 29999"
        ),
        None
    );
    assert_eq!(fences.difference("186715812864002", "5000000000002"), None);
    assert!(fences.difference("186715812864001", "5000000000002").is_some());
    assert!(fences.difference("186715812864003", "4000000000000").is_some());
}

#[test]
fn other_words_other_counts_and_other_times_are_differences() {
    let differs = |shown, seen| Fences::default().difference(shown, seen).is_some();
    assert!(differs("2) (integer) 1", "2) (integer) 2"));
    assert!(differs("60000", "30000"));
    assert!(differs("(nil)", "(error) ERR"));
    assert!(differs("a\nb", "a"));
    assert!(differs("(error) NOPERM ...", "(error) NOAUTH x"));
    assert!(!differs("(error) NOPERM ...", "(error) NOPERM x y"));
    assert!(differs("a", "a\nb"));
    assert!(!differs("alice  1  12ms  29s", "alice 1 500ms   30s"));
    assert!(differs("alice 1 12ms", "alice 1 40s"));
}
