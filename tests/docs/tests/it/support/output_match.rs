//! Compares output with a page. Fences and times differ from run to run.

use std::collections::BTreeMap;

/// A number with this many digits or more is a fence.
const FENCE_DIGITS: usize = 12;
/// A shorter number with this many digits or more is a time in milliseconds.
const TIME_DIGITS: usize = 3;
/// Tolerance for times, for slow machines.
const TIME_TOLERANCE_MS: u64 = 20_000;

/// Maps the fences on a page to those of this run.
#[derive(Default)]
pub struct Fences(BTreeMap<u64, u64>);

/// A token of a line.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    Fence(u64),
    TimeMs(u64),
    Text(&'a str),
}

impl Fences {
    /// How `actual` differs from the page, if it does.
    ///
    /// Equal fences on the page must be equal in this run, and larger ones larger.
    pub fn difference(&mut self, shown: &str, actual: &str) -> Option<String> {
        let (mut shown_lines, mut actual_lines) = (shown.trim_end().lines(), actual.trim_end().lines());
        loop {
            match (shown_lines.next(), actual_lines.next()) {
                (None, None) => return None,
                (shown, actual) => {
                    let (shown, actual) = (shown.unwrap_or("(the end)"), actual.unwrap_or("(the end)"));
                    if !self.is_same_line(shown, actual) {
                        return Some(format!("the page shows   {shown}\nthis run has     {actual}"));
                    }
                }
            }
        }
    }

    /// A line on the page may end with `...`: then only its beginning must match.
    fn is_same_line(&mut self, shown: &str, actual: &str) -> bool {
        let beginning = shown
            .strip_suffix("...")
            .filter(|beginning| !beginning.is_empty());
        let (shown, mut actual) = (tokens(beginning.unwrap_or(shown)), tokens(actual));
        if beginning.is_some() {
            actual.truncate(shown.len());
        }
        shown.len() == actual.len()
            && shown.iter().zip(&actual).all(|pair| match pair {
                (Token::Fence(shown), Token::Fence(actual)) => self.record_fence(*shown, *actual),
                (Token::TimeMs(shown), Token::TimeMs(actual)) => shown.abs_diff(*actual) <= TIME_TOLERANCE_MS,
                (Token::Text(shown), Token::Text(actual)) => shown == actual,
                // A time with few digits looks like a plain number.
                (Token::TimeMs(time), Token::Text(text)) | (Token::Text(text), Token::TimeMs(time)) => text
                    .parse::<u64>()
                    .is_ok_and(|number| time.abs_diff(number) <= TIME_TOLERANCE_MS),
                _ => false,
            })
    }

    /// Records a pair of fences. Returns whether their order fits the pairs actual before.
    fn record_fence(&mut self, shown: u64, actual: u64) -> bool {
        let smaller = self.0.range(..shown).next_back();
        let larger = self.0.range(shown + 1..).next();
        let fits = smaller.is_none_or(|(_, fence)| *fence < actual)
            && larger.is_none_or(|(_, fence)| actual < *fence)
            && self.0.get(&shown).is_none_or(|known| *known == actual);
        self.0.insert(shown, actual);
        fits
    }
}

/// The first fence in an output.
pub fn first_fence(output: &str) -> Option<u64> {
    output.lines().flat_map(tokens).find_map(|token| match token {
        Token::Fence(fence) => Some(fence),
        _ => None,
    })
}

/// Splits a line into fences, times, words, short numbers and single characters. White space only separates.
fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() {
            prefix_length(rest, |char| char.is_ascii_digit())
        } else if first.is_alphabetic() {
            prefix_length(rest, char::is_alphanumeric)
        } else {
            first.len_utf8()
        };
        let (token, rest_of_line) = rest.split_at(length);
        let number = token.parse().ok();
        let (token, length) = match number {
            Some(number) => number_of(number, token, rest_of_line),
            None => (Token::Text(token), 0),
        };
        tokens.push(token);
        rest = rest_of_line[length..].trim_start();
    }
    tokens
}

/// The token for a number, and the length of the unit that follows it.
fn number_of<'a>(number: u64, digits: &'a str, rest_of_line: &str) -> (Token<'a>, usize) {
    let word = rest_of_line.strip_prefix(' ').unwrap_or(rest_of_line);
    let unit = &word[..prefix_length(word, char::is_alphabetic)];
    let length = rest_of_line.len() - word.len() + unit.len();
    if let Some((seconds, length)) = seconds_after_minutes(rest_of_line) {
        return (Token::TimeMs(number * 60_000 + seconds * 1000), length);
    }
    if let Some((tenths, length)) = tenths_of_second(rest_of_line) {
        return (Token::TimeMs(number * 1000 + tenths * 100), length);
    }
    match unit {
        "ms" => (Token::TimeMs(number), length),
        "s" => (Token::TimeMs(number * 1000), length),
        _ if digits.len() >= FENCE_DIGITS => (Token::Fence(number), 0),
        _ if digits.len() >= TIME_DIGITS => (Token::TimeMs(number), 0),
        _ => (Token::Text(digits), 0),
    }
}

/// The seconds in `m47s`, and its length.
fn seconds_after_minutes(rest_of_line: &str) -> Option<(u64, usize)> {
    let rest = rest_of_line.strip_prefix('m')?;
    let digits = prefix_length(rest, |char| char.is_ascii_digit());
    let seconds = rest[..digits].parse().ok()?;
    rest[digits..].starts_with('s').then_some((seconds, digits + 2))
}

/// The tenths in `.1s`, and its length.
fn tenths_of_second(rest_of_line: &str) -> Option<(u64, usize)> {
    let tenths = rest_of_line.strip_prefix('.')?.chars().next()?.to_digit(10)?;
    let length = ".1s".len();
    (rest_of_line.get(2..length) == Some("s")).then_some((u64::from(tenths), length))
}

fn prefix_length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|char| !belongs(char)).unwrap_or(text.len())
}

#[test]
fn output_with_other_times_and_ordered_fences_matches() {
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
fn first_fence_is_a_long_number() {
    assert_eq!(
        first_fence("1) (integer) 186715812864001\n2) (integer) 1"),
        Some(186_715_812_864_001)
    );
    assert_eq!(first_fence("(integer) 60000"), None);
}

#[test]
fn output_with_other_words_counts_or_units_differs() {
    let differs = |shown, actual| Fences::default().difference(shown, actual).is_some();
    assert!(differs("2) (integer) 1", "2) (integer) 2"));
    assert!(differs("60000", "30000"));
    assert!(differs("(nil)", "(error) ERR"));
    assert!(differs("a\nb", "a"));
    assert!(differs("(error) NOPERM ...", "(error) NOAUTH x"));
    assert!(!differs("(error) NOPERM ...", "(error) NOPERM x y"));
    assert!(differs("a", "a\nb"));
    assert!(!differs("alice  1  12ms  29s", "alice 1 500ms   30s"));
    assert!(differs("alice 1 12ms", "alice 1 40s"));
    assert!(!differs("9m47s 0", "9m59s 0") && !differs("26ms 0", "4.1s 0"));
    assert!(differs("9m47s 0", "7m59s 0"));
    assert!(!differs("valid for 29 s", "valid for 28 s"));
    assert!(differs("valid for 29 s", "valid for 2 s"));
}
