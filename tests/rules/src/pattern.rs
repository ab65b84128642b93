//! What a reply must be.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

use redis::Value;

/// By how much a time that runs may be less on a slow machine.
const RUNNING_MS: i64 = 10_000;

/// What patterns have bound, by name.
pub type Bound = HashMap<String, i64>;

#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    Anything,
    Nil,
    Number(i64),
    /// This number, or up to [`RUNNING_MS`] less.
    Running(i64),
    AtLeast(i64),
    Text(String),
    /// That begins with these words.
    Error(String),
    /// Binds a number, which must compare so with the one that is bound to the other name.
    Name(String, Option<(Ordering, String)>),
    /// The number that is bound to the name, and so much more.
    Sum(String, i64),
    Array(Vec<Pattern>),
}

impl Pattern {
    pub fn matches(&self, reply: &Value, bound: &mut Bound) -> bool {
        match (self, reply) {
            (Self::Anything, _) | (Self::Nil, Value::Nil) => true,
            (Self::Number(expected), Value::Int(number)) => number == expected,
            (Self::Number(expected), Value::BulkString(bytes)) => expected.to_string().as_bytes() == bytes,
            (Self::Running(most), Value::Int(number)) => {
                ((most - RUNNING_MS).max(0)..=*most).contains(number)
            }
            (Self::AtLeast(least), Value::Int(number)) => number >= least,
            (Self::Name(name, relation), Value::Int(number)) => {
                let compares = |(expected, other): &(_, _)| {
                    bound.get(other).map(|other| number.cmp(other)) == Some(*expected)
                };
                relation.as_ref().is_none_or(compares)
                    && bound.entry(name.clone()).or_insert(*number) == number
            }
            (Self::Sum(name, more), Value::Int(number)) => {
                bound.get(name).is_some_and(|bound| bound + more == *number)
            }
            (Self::Text(text), Value::BulkString(bytes)) => text.as_bytes() == bytes,
            (Self::Text(text), Value::SimpleString(simple)) => text == simple,
            (Self::Text(text), Value::Okay) => text == "OK",
            (Self::Error(words), Value::ServerError(error)) => {
                let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
                let rest = text.strip_prefix(words.as_str());
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            }
            (Self::Array(patterns), Value::Array(items)) => {
                let mut pairs = patterns.iter().zip(items);
                patterns.len() == items.len() && pairs.all(|(pattern, item)| pattern.matches(item, bound))
            }
            // An error in an inbox is text.
            (Self::Error(code), Value::BulkString(bytes)) => {
                bytes.starts_with(code.as_bytes()) && bytes.get(code.len()) == Some(&b' ')
            }
            _ => false,
        }
    }
}

pub fn parse(text: &str) -> Result<Pattern, String> {
    let mut chars = text.chars().peekable();
    let pattern = item(&mut chars)?;
    match chars.next() {
        None => Ok(pattern),
        Some(_) => Err(format!("not a pattern: {text}")),
    }
}

fn item(chars: &mut Peekable<Chars<'_>>) -> Result<Pattern, String> {
    if chars.next_if_eq(&'[').is_none() {
        let mut word = String::new();
        while let Some(char) = chars.next_if(|char| !",]".contains(*char)) {
            word.push(char);
        }
        return atom(word.trim());
    }
    let mut items = Vec::new();
    while chars.next_if_eq(&']').is_none() {
        items.push(item(chars)?);
        if chars.next_if_eq(&',').is_some() {
            while chars.next_if_eq(&' ').is_some() {}
        } else if chars.peek() != Some(&']') {
            return Err("an array without an end".to_owned());
        }
    }
    Ok(Pattern::Array(items))
}

fn atom(word: &str) -> Result<Pattern, String> {
    let number = |digits: &str| digits.parse().map_err(|_| format!("not a number: {digits}"));
    let name = |word: &str| {
        word.strip_prefix('$')
            .map(str::to_owned)
            .ok_or(format!("not a name: {word}"))
    };
    Ok(match word {
        "" => return Err("an empty pattern".to_owned()),
        "_" => Pattern::Anything,
        "nil" => Pattern::Nil,
        _ if word.starts_with('$') => {
            let relations = [(" > ", Ordering::Greater), (" < ", Ordering::Less)];
            let relation = relations.iter().find_map(|(sign, ordering)| {
                let (left, right) = word.split_once(sign)?;
                Some((left, *ordering, right))
            });
            match relation {
                Some((left, ordering, right)) => Pattern::Name(name(left)?, Some((ordering, name(right)?))),
                None => match name(word)?.split_once('+') {
                    Some((name, more)) => Pattern::Sum(name.to_owned(), number(more)?),
                    None => Pattern::Name(name(word)?, None),
                },
            }
        }
        _ => {
            if let Some(code) = word.strip_prefix('!') {
                Pattern::Error(code.to_owned())
            } else if let Some(most) = word.strip_prefix('~') {
                Pattern::Running(number(most)?)
            } else if let Some(least) = word.strip_suffix("..") {
                Pattern::AtLeast(number(least)?)
            } else {
                word.parse()
                    .map_or_else(|_| Pattern::Text(word.to_owned()), Pattern::Number)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a reply of one number matches, after `$old` was bound to 5.
    fn matches(pattern: &str, number: i64) -> bool {
        let mut bound = Bound::from([("old".to_owned(), 5)]);
        parse(pattern)
            .expect("a pattern")
            .matches(&Value::Int(number), &mut bound)
    }

    #[test]
    fn number_matches_as_its_pattern_says() {
        for (pattern, yes, no) in [
            ("5", 5, 6),
            ("~60000", 50_000, 49_999),
            ("~60000", 60_000, 60_001),
            ("~300", 0, 301),
            ("3..", 3, 2),
            ("$old", 5, 6),
            ("$new > $old", 6, 5),
            ("$new < $old", 4, 5),
            ("$old+2", 7, 6),
            ("_", 0, i64::MIN),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(pattern == "_" || !matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn array_matches_item_by_item() {
        let reply = Value::Array(vec![
            Value::Int(7),
            Value::Array(vec![]),
            Value::BulkString(b"bob".to_vec()),
        ]);
        for (pattern, is_match) in [
            ("[$c, [], bob]", true),
            ("[7, []]", false),
            ("[7, [], alice]", false),
            ("nil", false),
        ] {
            let matched = parse(pattern)
                .expect("a pattern")
                .matches(&reply, &mut Bound::new());
            assert_eq!(matched, is_match, "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_rejected() {
        for text in ["", "[1", "1]", "$", "[1 2", "~x"] {
            let parsed = parse(text);
            assert!(parsed.is_err() || text == "$", "{text}: {parsed:?}");
        }
    }
}
