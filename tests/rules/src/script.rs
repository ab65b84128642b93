//! A file of rules.

use std::time::Duration;

use crate::pattern::{self, Pattern};

#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    pub steps: Vec<(usize, Step)>,
}

/// A step stands on a line, whose number comes with it.
#[derive(Clone, Debug)]
pub enum Step {
    Command {
        client: String,
        words: Vec<String>,
        expected: Expected,
    },
    Reply {
        client: String,
        pattern: Pattern,
    },
    /// Who holds a lock, or waits for it, in order: fields of DLOCK.INFO.
    Owners {
        field: &'static str,
        key: String,
        owners: Vec<String>,
    },
    Pass(Duration),
    Leave(String),
}

#[derive(Clone, Debug)]
pub enum Expected {
    /// The server blocks the client.
    Waits,
    /// It blocks the client in the place of this one, which gets a reply.
    Replaces(String),
    Reply(Pattern),
}

/// The rules of a file, or the line that is none and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let (mut rules, mut given) = (Vec::<Rule>::new(), Vec::new());
    let mut is_given = false;
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !is_comment(line));
    while let Some((number, line)) = lines.next() {
        if line.starts_with("given ") {
            (given, is_given) = (Vec::new(), true);
        } else if let Some(name) = line.strip_prefix("rule ") {
            is_given = false;
            rules.push(Rule {
                name: name.to_owned(),
                steps: given.clone(),
            });
        } else {
            let next = || lines.next().map(|(_, line)| line.trim());
            let step = step(line.trim(), next).map_err(|error| format!("{number}: {error}"))?;
            let steps = match rules.last_mut() {
                Some(rule) if !is_given => &mut rule.steps,
                _ => &mut given,
            };
            steps.push((number, step));
        }
    }
    Ok(rules)
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn step<'a>(line: &'a str, next: impl FnOnce() -> Option<&'a str>) -> Result<Step, String> {
    if let Some((client, command)) = line.split_once("> ").filter(|(client, _)| is_name(client)) {
        return Ok(Step::Command {
            client: client.to_owned(),
            words: command.split(' ').map(str::to_owned).collect(),
            expected: expected(next().ok_or("a command without a reply")?)?,
        });
    }
    if let Some((client, pattern)) = line.split_once(": ").filter(|(client, _)| is_name(client)) {
        let (client, pattern) = (client.to_owned(), pattern::parse(pattern)?);
        return Ok(Step::Reply { client, pattern });
    }
    if let Some(rest) = line.strip_prefix("holders ") {
        return owners("holders", rest);
    }
    if let Some(rest) = line.strip_prefix("queue ") {
        return owners("waiters", rest);
    }
    if let Some(client) = line.strip_suffix(" leaves") {
        return Ok(Step::Leave(client.to_owned()));
    }
    let ms = line
        .strip_prefix("pass ")
        .and_then(|time| time.strip_suffix(" ms"));
    let ms = ms.and_then(|ms| ms.parse().ok());
    let ms = ms.ok_or_else(|| format!("not a step: {line}"))?;
    Ok(Step::Pass(Duration::from_millis(ms)))
}

fn expected(line: &str) -> Result<Expected, String> {
    if line == "waits" {
        return Ok(Expected::Waits);
    }
    match line.strip_prefix("replaces ") {
        Some(client) => Ok(Expected::Replaces(client.to_owned())),
        None => pattern::parse(line).map(Expected::Reply),
    }
}

/// `door: alice, bob`
fn owners(field: &'static str, text: &str) -> Result<Step, String> {
    let (key, owners) = text.split_once(": ").ok_or("a lock without owners")?;
    let owners = owners.split(", ").filter(|owner| *owner != "nobody");
    Ok(Step::Owners {
        field,
        key: key.to_owned(),
        owners: owners.map(str::to_owned).collect(),
    })
}

/// The connection without a name is one too.
fn is_name(text: &str) -> bool {
    text.chars()
        .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_steps_come_first_in_each_rule_up_to_the_next_given() {
        let text = "given one\n> PING\n_\nrule a\nrule b\n> PING\n_\ngiven none\nrule c\n";
        let rules = parse(text).expect("rules");
        let lengths: Vec<_> = rules.iter().map(|rule| (&*rule.name, rule.steps.len())).collect();
        assert_eq!(lengths, [("a", 1), ("b", 2), ("c", 0)]);
    }

    #[test]
    fn line_that_is_no_step_is_reported_with_its_number() {
        let error = parse("rule a\n# a comment\n    nonsense\n").expect_err("no step");
        assert_eq!(error, "3: not a step: nonsense");
    }
}
