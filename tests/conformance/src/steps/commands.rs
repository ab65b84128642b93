//! Commands to drivers, and what they answer and tell.

use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::pattern::difference;
use crate::scenario::Fields;
use crate::world::{CommandId, World};

/// The lease of locks for which a scenario says nothing else: longer than any scenario.
const LEASE_MS: u64 = 30_000;

/// `do`: a command. With `gets` it waits for the answer.
pub fn command(world: &mut World, fields: &mut Fields) -> Outcome {
    let driver = fields.take_driver()?;
    let name = fields.take("as");
    let expected = Expected::take(fields)?;
    let mut command = fields.rest();
    if let Some(of) = command.get_mut("of") {
        let of_name = of.as_str().ok_or("`of` names a command")?;
        *of = json!(world.named(of_name)?.id);
    }
    if command["do"] == "acquire" || command["do"] == "try" {
        command.entry("lease_ms").or_insert(json!(LEASE_MS));
    }
    let id = world.driver(&driver)?.send(command)?;
    let command = CommandId { driver, id };
    if let Some(Value::String(name)) = name {
        world.name(name, command.clone())?;
    }
    expected.check(world, &command)
}

/// `expect`: the answer to an earlier command.
pub fn expect(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = world.named(&fields.take_text("expect")?)?;
    Expected::take(fields)?.check(world, &command)
}

/// `silent`: a command that must not have an answer yet.
pub fn silent(world: &mut World, fields: &mut Fields) -> Outcome {
    let CommandId { driver, id } = world.named(&fields.take_text("silent")?)?;
    let received = world.driver(&driver)?.received();
    match received.answers.get(&id) {
        None => Ok(()),
        Some((_, answer)) => Err(format!("already answered: {answer}")),
    }
}

/// `lost`: the driver must tell that this lock is lost, with an event like the pattern `gets`.
pub fn lost(world: &mut World, fields: &mut Fields) -> Outcome {
    let CommandId { driver, id } = world.named(&fields.take_text("lost")?)?;
    let limit = fields.take_limit()?;
    let pattern = fields.take("gets").unwrap_or_default();
    let event = world.driver(&driver)?.lost(id, limit)?;
    world.losses_told.insert((driver, id));
    match pattern {
        Value::Null => Ok(()),
        _ => difference(&pattern, &event, &|_| None).map_or(Ok(()), Err),
    }
}

/// `waiting`: the driver must have told `times` times that it waits for this key, first with an event like `gets`.
pub fn waiting(world: &mut World, fields: &mut Fields) -> Outcome {
    let (key, driver) = (fields.take_text("waiting")?, fields.take_driver()?);
    let limit = fields.take_limit()?;
    let times = fields.take_number("times")?.unwrap_or(1);
    let pattern = fields.take("gets").ok_or("`gets` is what is told")?;
    let (event, told) = world.driver(&driver)?.waiting(&key, limit)?;
    if told as u64 != times {
        return Err(format!("told {told} times, not {times}"));
    }
    difference(&pattern, &event, &|_| None).map_or(Ok(()), Err)
}

/// `end_of_input`: the driver's input ends, so that it gives back what it holds and exits.
pub fn end_of_input(world: &mut World, fields: &mut Fields) -> Outcome {
    let driver = fields.take_text("end_of_input")?;
    let driver = world.driver(&driver)?;
    driver.end_input();
    driver.expect_exit()
}

/// What the answer to a command must be.
struct Expected {
    answer: Option<Value>,
    /// How long after the command.
    took_ms: Option<Value>,
    limit: Duration,
}

impl Expected {
    fn take(fields: &mut Fields) -> Outcome<Self> {
        Ok(Self {
            answer: fields.take("gets"),
            took_ms: fields.take("took_ms"),
            limit: fields.take_limit()?,
        })
    }

    fn check(&self, world: &mut World, command: &CommandId) -> Outcome {
        let Some(pattern) = &self.answer else {
            return Ok(());
        };
        let driver = world.driver(&command.driver)?;
        let (at, answer) = driver.answer(command.id, self.limit)?;
        let took = driver.commands().find(|(id, _)| *id == command.id);
        let took = took.map_or(Duration::ZERO, |(_, sent)| at.saturating_duration_since(sent.at));
        let fence_of = |name: &str| world.fence_of(name);
        let mut differences = difference(pattern, &answer, &fence_of);
        if let Some(pattern) = &self.took_ms {
            let took = json!(took.as_millis() as u64);
            let late = difference(pattern, &took, &fence_of);
            differences = differences.or(late.map(|late| format!("milliseconds: {late}")));
        }
        differences.map_or(Ok(()), Err)
    }
}
