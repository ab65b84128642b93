//! A scenario for each word in the table of errors: a part for each command, and what a client does then.
//!
//! `scenarios/errors.json` has the parts, and the cells of the table that each is about. In its steps, a text in capital
//! letters stands for a value that depends on the word, and `fault`, `fault_has_passed` and `fault_ends` for steps.

use serde_json::{Value, json};

use crate::error_table::{Row, rows};
use crate::outcome::Outcome;
use crate::setting::is_synchronous;

const PARTS: &str = include_str!("../scenarios/errors.json");
/// How often a client may ask in 1 s or 2 s: its pauses grow.
const OFTEN: u64 = 100;
/// A word that no client knows.
const OTHER: &str = "SONG";

pub fn scenarios() -> Outcome<Vec<Value>> {
    let parts: Vec<Value> = serde_json::from_str(PARTS).map_err(|error| error.to_string())?;
    rows()?.iter().map(|row| scenario(row, &parts)).collect()
}

/// The parts about the cells of a row, after those about none.
fn scenario(row: &Row, parts: &[Value]) -> Outcome<Value> {
    let fault = Fault::of(&row.word);
    let mut chosen: Vec<&Value> = parts.iter().filter(|part| part["cells"] == json!([])).collect();
    for (column, reaction) in &row.reactions {
        let cell = json!(format!("{column}: {}", fault.reaction(reaction)));
        let is_about = |part: &&Value| {
            part["cells"]
                .as_array()
                .is_some_and(|cells| cells.contains(&cell))
        };
        let before = chosen.len();
        chosen.extend(parts.iter().filter(is_about));
        if chosen.len() == before && reaction != "never" {
            return Err(format!("{}: errors.json has no part for {cell}", row.word));
        }
    }
    // An inbox brings the grant that no reply did.
    chosen.retain(|part| !(part["needs_the_reply"] == true && fault.is_lost_reply && is_synchronous()));
    let parts: Value = chosen.into_iter().map(|part| part_for(&fault, part)).collect();
    let name = format!("{}_in_reply", row.word.to_lowercase().replace(' ', "_"));
    Ok(json!({"name": name, "parts": parts}))
}

fn part_for(fault: &Fault, part: &Value) -> Value {
    let name = part["name"].as_str().unwrap_or_default();
    let key = format!("{{{}}}", name.replace(' ', "-"));
    json!({"name": format!("{name}:"), "steps": fault.in_part(&part["steps"], &key)})
}

/// What goes wrong, with one word.
struct Fault {
    /// As drivers say it.
    word: String,
    is_lost_reply: bool,
}

impl Fault {
    fn of(word: &str) -> Self {
        let is_lost_reply = word == "no reply";
        let word = match word {
            "no reply" => "CONNECTION",
            "every other word" => OTHER,
            word => word,
        };
        Self {
            word: word.to_owned(),
            is_lost_reply,
        }
    }

    /// The drivers are not connected as to a cluster: nothing has moved.
    fn reaction<'a>(&self, reaction: &'a str) -> &'a str {
        match self.word.as_str() {
            "MOVED" | "ASK" => "told",
            _ => reaction,
        }
    }

    /// It happens to the next requests of a command for a key, so often.
    fn to(&self, command: &str, key: &str, times: &Value) -> Value {
        match self.is_lost_reply {
            true => json!({"lose_replies_to": command, "times": times}),
            false => json!({"answer": self.word, "to": command, "key": key, "times": times}),
        }
    }

    /// It has happened so often.
    fn has_passed(&self) -> Value {
        match self.is_lost_reply {
            true => json!({"wait_for_lost_replies": "a"}),
            false => json!({"wait_for_answers": "a"}),
        }
    }

    /// It happens no more, and has not happened so often that there were no pauses.
    fn ends(&self, command: &str) -> Value {
        match self.is_lost_reply {
            true => self.to(command, "", &json!(0)),
            false => json!({"answered": "a", "count": {"min": 2, "max": OFTEN}}),
        }
    }

    /// The word that is told. A client of one server may call it a wrong use that it is a node of a cluster.
    fn told_word(&self) -> Value {
        match self.word.as_str() {
            "MOVED" | "ASK" => json!({"one_of": [self.word, "ARGUMENT"]}),
            word => json!(word),
        }
    }

    /// The word that a loss names. A client may look for the primary meanwhile, and not find it in time.
    fn last_word(&self) -> Value {
        match self.word.as_str() {
            "READONLY" | "MASTERDOWN" => json!({"one_of": [self.word, "CONNECTION"]}),
            _ => self.told_word(),
        }
    }

    /// What a text in a part stands for, if it is one of these.
    fn value_of(&self, name: &str) -> Option<Value> {
        let error = json!({"error": self.told_word()});
        let loss = json!({"lost": true, "because": self.word});
        match name {
            "WORD" => Some(json!(self.word)),
            "LAST WORD" => Some(self.last_word()),
            "ERROR" => Some(error),
            "LOSS" => Some(loss),
            // Some clients call these words a loss everywhere.
            "ERROR OR LOSS" => Some(json!({"one_of": [error, loss]})),
            // What has no reply runs once; what is refused does not run.
            "TIMES IT RAN" => Some(json!(self.is_lost_reply.then_some("1"))),
            _ => None,
        }
    }

    /// A part for this fault, with a lock of its own.
    fn in_part(&self, part: &Value, key: &str) -> Value {
        match part {
            Value::String(text) => self
                .value_of(text)
                .unwrap_or_else(|| json!(text.replace("KEY", key))),
            Value::Array(items) => items.iter().map(|item| self.in_part(item, key)).collect(),
            Value::Object(fields) => {
                let command = |name: &str| part[name].as_str();
                if let Some(command) = command("fault") {
                    self.to(command, key, &part["times"])
                } else if let Some(command) = command("fault_ends") {
                    self.ends(command)
                } else if command("fault_has_passed").is_some() {
                    self.has_passed()
                } else {
                    let fields = fields.iter();
                    let filled = fields.map(|(name, value)| (name.clone(), self.in_part(value, key)));
                    Value::Object(filled.collect())
                }
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_word_has_a_part_for_every_command() {
        let scenarios = scenarios().expect("the table is there");
        let words = rows().expect("the table is there");
        assert_eq!(scenarios.len(), words.len());
        for scenario in scenarios {
            let scenario = Scenario::parse(scenario).expect("it has the fields of a scenario");
            assert!(scenario.parts.len() > 5, "{}", scenario.name);
        }
    }
}
