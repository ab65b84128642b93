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
        /// More than one are sent together.
        commands: Vec<Vec<String>>,
        expected: Expected,
    },
    Reply {
        client: String,
        pattern: Pattern,
    },
    /// The server closes the connection instead of a reply.
    Closed(String),
    /// Who holds a lock, or waits for it, in order: fields of DLOCK.INFO.
    Owners {
        field: &'static str,
        key: String,
        owners: Vec<String>,
    },
    /// A field of INFO.
    Info {
        field: String,
        pattern: Pattern,
    },
    Pass(Duration),
    Leave(String),
    /// The step is repeated until it succeeds.
    Eventually(Box<Step>),
    Real(Real),
}

#[derive(Clone, Debug)]
pub enum Expected {
    /// The server blocks the client.
    Waits,
    /// It blocks the client in the place of this one, which gets a reply.
    Replaces(String),
    /// One for each command. If the last ones have none, the client waits for them.
    Replies(Vec<Pattern>),
}

/// What only a real server can do.
#[derive(Clone, Debug)]
pub enum Real {
    /// A line of the configuration file, for this start if no step comes before, and for the next one otherwise.
    Config(String),
    /// The server is killed, and started again on its data.
    Crash,
    /// The server is killed.
    Kill,
    /// A replica with this line in its configuration file starts, and follows the server.
    StartReplica(String),
    /// The replica's process is stopped: connections stay open, nothing is answered.
    StopReplica,
    ResumeReplica,
    /// The replica has all changes.
    Sync,
    /// From here on, what the server replicates is kept for `stream`, and its keyspace events for `events`.
    Watch,
    Stream(Vec<String>),
    Events(Vec<String>),
}

/// A rule, or what is given for the rules after it, and its lines with their numbers.
struct Block<'a> {
    title: &'a str,
    lines: Vec<(usize, String)>,
}

/// The rules of a file, or the line that is none and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    let mut given = Vec::new();
    for block in blocks(text) {
        let Some(name) = block.title.strip_prefix("rule ") else {
            given = block.lines;
            continue;
        };
        let (each, lines): (Vec<_>, Vec<_>) = block
            .lines
            .iter()
            .partition(|(_, line)| line.starts_with("each "));
        for (row, values) in rows(&each)? {
            let lines = given.iter().chain(lines.iter().copied()).map(|(number, line)| {
                let insert =
                    |line: String, (name, value): &(&str, &str)| line.replace(&format!("{{{name}}}"), value);
                (*number, values.iter().fold((*line).to_owned(), insert))
            });
            let name = format!("{name} {row}").trim_end().to_owned();
            let steps = steps(&lines.collect::<Vec<_>>())?;
            rules.push(Rule { name, steps });
        }
    }
    Ok(rules)
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !is_comment(line)) {
        if line.starts_with("given ") || line.starts_with("rule ") {
            let (title, lines) = (line, Vec::new());
            blocks.push(Block { title, lines });
        } else if let Some(block) = blocks.last_mut() {
            match block.lines.last_mut() {
                Some((_, begun)) if begun.ends_with([',', '|']) => {
                    begun.push(' ');
                    begun.push_str(line.trim());
                }
                _ => block.lines.push((number, line.trim().to_owned())),
            }
        }
    }
    blocks
}

/// One rule for each row of `each code, request: ERR, door; STALE, gate`: the row, and what stands for `{code}` and
/// `{request}` in it. One rule if there are none.
type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>);

fn rows<'a>(each: &[&'a (usize, String)]) -> Result<Vec<Row<'a>>, String> {
    let mut rows = Vec::new();
    for (number, line) in each {
        let (names, values) = line[5..]
            .split_once(": ")
            .ok_or_else(|| format!("{number}: each without rows"))?;
        let names: Vec<_> = names.split(", ").collect();
        for row in values.split("; ") {
            let values: Vec<_> = row.splitn(names.len(), ", ").collect();
            if values.len() != names.len() {
                return Err(format!("{number}: a row of {} values: {row}", values.len()));
            }
            rows.push((row, names.iter().copied().zip(values).collect()));
        }
    }
    if rows.is_empty() {
        rows.push(("", Vec::new()));
    }
    Ok(rows)
}

fn steps(lines: &[(usize, String)]) -> Result<Vec<(usize, Step)>, String> {
    let mut steps = Vec::new();
    let mut lines = lines.iter();
    while let Some((number, line)) = lines.next() {
        let mut next = || lines.next().map(|(_, line)| line.as_str());
        let step = step(line, &mut next).map_err(|error| format!("{number}: {error}"))?;
        steps.push((*number, step));
    }
    Ok(steps)
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// `next`: the line after it.
fn step<'a>(line: &str, next: &mut dyn FnMut() -> Option<&'a str>) -> Result<Step, String> {
    if let Some(rest) = line.strip_prefix("eventually ") {
        return Ok(Step::Eventually(Box::new(step(rest, next)?)));
    }
    if let Some((client, line)) = line.split_once("> ").filter(|(client, _)| is_name(client)) {
        let commands: Vec<_> = line.split(" | ").map(words).collect();
        let expected = expected(next().ok_or("a command without a reply")?, commands.len())?;
        return Ok(Step::Command {
            client: client.to_owned(),
            commands,
            expected,
        });
    }
    if let Some((client, reply)) = line.split_once(": ").filter(|(client, _)| is_name(client)) {
        let client = client.to_owned();
        if reply == "closed" {
            return Ok(Step::Closed(client));
        }
        let pattern = pattern::parse(reply)?;
        return Ok(Step::Reply { client, pattern });
    }
    if let Some(client) = line.strip_suffix(" leaves") {
        return Ok(Step::Leave(client.to_owned()));
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match word {
        "holders" => owners("holders", rest)?,
        "queue" => owners("waiters", rest)?,
        "info" => info(rest)?,
        "pass" => Step::Pass(time(rest)?),
        _ => Step::Real(real(word, rest).ok_or_else(|| format!("not a step: {line}"))?),
    })
}

fn real(word: &str, rest: &str) -> Option<Real> {
    let list = || match rest {
        "nothing" => Vec::new(),
        _ => rest.split("; ").map(str::to_owned).collect(),
    };
    Some(match (word, rest) {
        ("config", line) => Real::Config(line.to_owned()),
        ("crash", "") => Real::Crash,
        ("kill", "") => Real::Kill,
        ("replica", line) => Real::StartReplica(line.to_owned()),
        ("stop", "replica") => Real::StopReplica,
        ("resume", "replica") => Real::ResumeReplica,
        ("sync", "") => Real::Sync,
        ("watch", "") => Real::Watch,
        ("stream", _) => Real::Stream(list()),
        ("events", _) => Real::Events(list()),
        _ => return None,
    })
}

/// The words of a command. Between double quotes, spaces are part of a word, and `\n` begins a line.
fn words(command: &str) -> Vec<String> {
    let parts = (0..).zip(command.split('"'));
    let words = parts.flat_map(|(n, part): (u32, &str)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.replace("\\n", "\n")],
    });
    words.collect()
}

fn expected(line: &str, commands: usize) -> Result<Expected, String> {
    if line == "waits" {
        return Ok(Expected::Waits);
    }
    if let Some(client) = line.strip_prefix("replaces ") {
        return Ok(Expected::Replaces(client.to_owned()));
    }
    match (pattern::parse(line)?, commands) {
        (pattern, 1) => Ok(Expected::Replies(vec![pattern])),
        (Pattern::Array(patterns), _) => Ok(Expected::Replies(patterns)),
        _ => Err(format!("not the replies to {commands} commands: {line}")),
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

/// `dlock_waiters: 0`
fn info(text: &str) -> Result<Step, String> {
    let (field, pattern) = text.split_once(": ").ok_or("a field without a value")?;
    Ok(Step::Info {
        field: field.to_owned(),
        pattern: pattern::parse(pattern)?,
    })
}

/// `300 ms`
fn time(text: &str) -> Result<Duration, String> {
    let ms = text.strip_suffix(" ms").and_then(|ms| ms.parse().ok());
    let ms = ms.ok_or_else(|| format!("not a time: {text}"))?;
    Ok(Duration::from_millis(ms))
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
    fn each_row_is_a_rule() {
        let rules = parse("rule a\neach x, y: 1, GET a, b; 2, DEL\n> {y} {x}\n_\n").expect("rules");
        let names: Vec<_> = rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["a 1, GET a, b", "a 2, DEL"]);
        let Step::Command { commands, .. } = &rules[1].steps[0].1 else {
            panic!("{:?}", rules[1].steps)
        };
        assert_eq!(commands, &[["DEL", "2"]]);
    }

    #[test]
    fn commands_are_split_at_bars_and_words_at_spaces_outside_of_quotes() {
        let rules = parse("rule a\n> EVAL \"return 1\" 0 | PING\n[1, PONG]\n").expect("rules");
        let Step::Command { commands, .. } = &rules[0].steps[0].1 else {
            panic!("{:?}", rules[0].steps)
        };
        assert_eq!(commands, &[vec!["EVAL", "return 1", "0"], vec!["PING"]]);
    }

    #[test]
    fn line_that_ends_with_a_comma_or_a_bar_goes_on() {
        let rules = parse("rule a\n> PING |\n    PING\n[PONG,\n    PONG]\n").expect("rules");
        let Step::Command {
            commands, expected, ..
        } = &rules[0].steps[0].1
        else {
            panic!("{:?}", rules[0].steps)
        };
        assert_eq!(commands.len(), 2);
        assert!(matches!(expected, Expected::Replies(replies) if replies.len() == 2));
    }

    #[test]
    fn line_that_is_no_step_is_reported_with_its_number() {
        let error = parse("rule a\n# a comment\n    nonsense\n").expect_err("no step");
        assert_eq!(error, "3: not a step: nonsense");
    }
}
