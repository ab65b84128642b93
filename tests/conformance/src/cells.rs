//! A scenario for each word in the table of errors: a part for each command, and what a client does then.

use serde_json::{Value, json};

use crate::error_table::{Column, Reaction, Row, rows};
use crate::outcome::Outcome;
use crate::world::is_synchronous;

/// More often than any client asks.
const ALWAYS: u64 = 1_000_000;
/// How often a client may ask in 1 s or 2 s: its pauses grow.
const OFTEN: u64 = 100;
/// A word that no client knows.
const OTHER: &str = "SONG";

pub fn scenarios() -> Outcome<Vec<Value>> {
    Ok(rows()?.iter().map(scenario).collect())
}

fn scenario(row: &Row) -> Value {
    let fault = Fault::of(&row.word);
    let cells = row.reactions.iter();
    let parts = cells.flat_map(|(column, reaction)| parts(&fault, *column, fault.reaction(*reaction)));
    let warm_up = [json!({"name": "warm-up", "steps": [
        {"do": "acquire", "key": "warm-up", "as": "first", "gets": {"held": true}},
        {"do": "release", "of": "first", "gets": {"released": true}},
    ]})];
    let name = format!("{}_in_reply", row.word.to_lowercase().replace(' ', "_"));
    json!({"name": name, "parts": warm_up.into_iter().chain(parts).collect::<Value>()})
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
    fn reaction(&self, reaction: Reaction) -> Reaction {
        match self.word.as_str() {
            "MOVED" | "ASK" => Reaction::Told,
            _ => reaction,
        }
    }

    /// It happens to the next requests of a command for a key, so often.
    fn to(&self, command: &str, key: &str, times: u64) -> Value {
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
            true => self.to(command, "", 0),
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

    fn error(&self) -> Value {
        json!({"error": self.told_word()})
    }

    fn loss(&self) -> Value {
        json!({"lost": true, "because": self.word})
    }

    /// What an acquisition may say: some clients call these words a loss everywhere.
    fn told(&self) -> Value {
        json!({"one_of": [self.error(), self.loss()]})
    }
}

fn parts(fault: &Fault, column: Column, reaction: Reaction) -> Vec<Value> {
    match (column, reaction) {
        (_, Reaction::Never) => vec![],
        // An inbox brings the grant that no reply did.
        (Column::Waiting, Reaction::Again) if fault.is_lost_reply && is_synchronous() => {
            vec![waits_again(fault)]
        }
        (Column::Waiting, Reaction::Again) => vec![waits_again(fault), times_out(fault)],
        (Column::Waiting, _) => vec![acquisition_is_told(fault, "acquire")],
        (Column::Trying, Reaction::Again) => vec![tries_again(fault)],
        (Column::Trying, _) => vec![acquisition_is_told(fault, "try")],
        (Column::Extend, Reaction::Again) => vec![extends_again(fault), renews_again(fault), expires(fault)],
        (Column::Extend, Reaction::Told) => vec![extend_is_told(fault), renews_again(fault), expires(fault)],
        (Column::Extend, Reaction::Lost) => vec![loses_at_extend(fault), loses_at_renewal(fault)],
        (Column::Release, Reaction::Again) => vec![releases_again(fault), releases_in_the_background(fault)],
        (Column::Release, Reaction::Told) => vec![release_is_told(fault)],
        (Column::Release, Reaction::Lost) => vec![loses_at_release(fault)],
        (Column::Guard, Reaction::Lost) => vec![loses_at_query(fault)],
        (Column::Guard, _) => vec![query_is_told(fault)],
    }
}

/// The steps of a part, which has a lock of its own, and the name of that lock.
fn part(name: &str, steps: impl FnOnce(&str) -> Value) -> Value {
    let key = format!("{{{}}}", name.replace(' ', "-"));
    json!({"name": format!("{name}:"), "steps": steps(&key)})
}

fn waits_again(fault: &Fault) -> Value {
    part("ACQUIRE that waits is sent again", |key| {
        json!([
            fault.to("DLOCK.ACQUIRE", key, 2),
            {"do": "acquire", "key": key, "as": "first", "gets": {"held": true}},
            fault.has_passed(),
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
}

fn times_out(fault: &Fault) -> Value {
    part("ACQUIRE that waits says why it timed out", |key| {
        json!([
            fault.to("DLOCK.ACQUIRE", key, ALWAYS),
            {"do": "acquire", "key": key, "timeout_ms": 1500, "gets": {"held": false, "because": fault.word}, "took_ms": {"min": 1450, "max": 8000}},
            fault.ends("DLOCK.ACQUIRE"),
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn acquisition_is_told(fault: &Fault, command: &str) -> Value {
    part(&format!("{command} is told"), |key| {
        json!([
            fault.to("DLOCK.ACQUIRE", key, 1),
            {"do": command, "key": key, "gets": fault.told(), "took_ms": {"max": 5000}},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn tries_again(fault: &Fault) -> Value {
    part("ACQUIRE that does not wait is sent again", |key| {
        json!([
            fault.to("DLOCK.ACQUIRE", key, 1),
            {"do": "try", "key": key, "as": "first", "gets": {"held": true}},
            fault.has_passed(),
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
}

fn extends_again(fault: &Fault) -> Value {
    part("EXTEND is sent again", |key| {
        json!([
            {"do": "acquire", "key": key, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, 2),
            {"do": "extend", "of": "first", "lease_ms": 60000, "gets": {"extended": true}},
            fault.has_passed(),
            {"remaining": "first", "at_least_ms": 31000},
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
}

fn extend_is_told(fault: &Fault) -> Value {
    part("EXTEND is told", |key| {
        json!([
            {"do": "acquire", "key": key, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, 1),
            {"do": "extend", "of": "first", "lease_ms": 60000, "gets": fault.error(), "took_ms": {"max": 5000}},
            {"remaining": "first", "at_least_ms": 10000},
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
}

fn renews_again(fault: &Fault) -> Value {
    part("renewal is sent again", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 3500, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, 2),
            fault.has_passed(),
            {"pause_ms": 2500},
            {"remaining": "first", "at_least_ms": 100},
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
}

fn expires(fault: &Fault) -> Value {
    part("renewal is sent again until the deadline", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 1500, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, ALWAYS),
            {"lost": "first", "gets": {"because": "EXPIRED", "last": fault.last_word()}},
            {"do": "release", "of": "first", "gets": {"lost": true, "because": "EXPIRED"}},
            fault.ends("DLOCK.EXTEND"),
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn loses_at_extend(fault: &Fault) -> Value {
    part("EXTEND finds a loss", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 4000, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, 1),
            {"do": "extend", "of": "first", "lease_ms": 4000, "gets": fault.loss()},
            {"lost": "first", "gets": {"because": fault.word}},
            {"do": "release", "of": "first", "gets": fault.loss()},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn loses_at_renewal(fault: &Fault) -> Value {
    part("renewal finds a loss", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 3500, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.EXTEND", key, 1),
            {"lost": "first", "gets": {"because": fault.word}, "within_ms": 3000},
            {"do": "release", "of": "first", "gets": fault.loss()},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn releases_again(fault: &Fault) -> Value {
    part("RELEASE is sent again", |key| {
        json!([
            {"do": "acquire", "key": key, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.RELEASE", key, 2),
            {"do": "release", "of": "first", "gets": {"one_of": [{"released": true}, unconfirmed()]}},
            fault.has_passed(),
            {"wait_for_lock": key, "is": null, "within_ms": 5000},
        ])
    })
}

fn unconfirmed() -> Value {
    json!({"lost": true, "because": "UNCONFIRMED"})
}

fn releases_in_the_background(fault: &Fault) -> Value {
    part("RELEASE is sent again in the background", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 120_000, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.RELEASE", key, ALWAYS),
            {"do": "release", "of": "first", "gets": unconfirmed(), "took_ms": {"max": 16000}, "within_ms": 20000},
            fault.to("DLOCK.RELEASE", key, 0),
            {"wait_for_lock": key, "is": null, "within_ms": 5000},
        ])
    })
}

fn release_is_told(fault: &Fault) -> Value {
    part("RELEASE is told", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 4000, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.RELEASE", key, 1),
            {"do": "release", "of": "first", "gets": fault.error(), "took_ms": {"max": 5000}},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn loses_at_release(fault: &Fault) -> Value {
    part("RELEASE finds a loss", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 4000, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.RELEASE", key, 1),
            {"do": "release", "of": "first", "gets": fault.loss(), "took_ms": {"max": 5000}},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

fn loses_at_query(fault: &Fault) -> Value {
    part("GUARD finds a loss", |key| {
        json!([
            {"do": "acquire", "key": key, "lease_ms": 4000, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.GUARD", key, 1),
            {"do": "query", "of": "first", "command": ["INCR", format!("{key}n")], "gets": fault.loss()},
            {"lost": "first", "gets": {"because": fault.word}},
            {"do": "release", "of": "first", "gets": fault.loss()},
            {"wait_for_lock": key, "is": null},
        ])
    })
}

/// What has no reply runs once; what is refused does not run.
fn query_is_told(fault: &Fault) -> Value {
    let count = fault.is_lost_reply.then_some("1");
    part("GUARD is told", |key| {
        json!([
            {"do": "acquire", "key": key, "as": "first", "gets": {"held": true}},
            fault.to("DLOCK.GUARD", key, 1),
            {"do": "query", "of": "first", "command": ["INCR", format!("{key}n")], "gets": fault.error(), "took_ms": {"max": 6000}},
            {"pause_ms": 500},
            {"server": format!("GET {key}n"), "replies": count},
            {"do": "release", "of": "first", "gets": {"released": true}},
        ])
    })
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
