//! Time, and what a driver believes to have left of it.

use std::time::{Duration, Instant};

use dlock_testkit::pause as let_time_pass;
use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::scenario::Fields;
use crate::world::{CommandId, World};

const PATIENCE: Duration = Duration::from_secs(10);
const SAMPLE_INTERVAL_MS: u64 = 20;
/// The server rounds down.
const ROUNDING: Duration = Duration::from_millis(1);

/// `pause_ms`: lets time pass, where it is what matters.
pub fn pause(_: &mut World, fields: &mut Fields) -> Outcome {
    let ms = fields.take_number("pause_ms")?.unwrap_or_default();
    let_time_pass(ms);
    Ok(())
}

/// `remaining`: a lock that is held. For `for_ms`, the driver must never believe to hold it for longer than the server
/// grants, nor for less than `at_least_ms`.
pub fn remaining(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = world.named(&fields.take_text("remaining")?)?;
    let span = Duration::from_millis(fields.take_number("for_ms")?.unwrap_or_default());
    let at_least = fields.take_number("at_least_ms")?.unwrap_or_default();
    let start = Instant::now();
    let mut samples = 0;
    while samples == 0 || start.elapsed() < span {
        let (mut earliest_end, left_ms) = believed(world, &command)?;
        // What the safe formula leaves.
        earliest_end += Duration::from_millis(left_ms).mul_f64(0.001) + Duration::from_millis(2);
        // Later than the belief: a renewal in between can only add to it.
        let latest_end = granted(world, &command)?;
        if earliest_end > latest_end {
            let excess = earliest_end.duration_since(latest_end);
            return Err(format!(
                "believes to hold the lock {excess:?} longer than the server grants"
            ));
        }
        if left_ms < at_least {
            return Err(format!("only {left_ms} ms remain"));
        }
        samples += 1;
        let_time_pass(SAMPLE_INTERVAL_MS);
    }
    Ok(())
}

/// When the driver believes to lose the lock, at the earliest.
fn believed(world: &mut World, of: &CommandId) -> Outcome<(Instant, u64)> {
    let mut command = Map::new();
    command.insert("do".into(), json!("state"));
    command.insert("of".into(), json!(of.id));
    let driver = world.driver(&of.driver)?;
    let asked = Instant::now();
    let id = driver.send(command)?;
    let (_, state) = driver.answer(id, PATIENCE)?;
    match (&state["held"], state["remaining_ms"].as_f64()) {
        (Value::Bool(true), Some(ms)) if ms > 0.0 => {
            Ok((asked + Duration::from_secs_f64(ms / 1000.0), ms as u64))
        }
        _ => Err(format!("not held: {state}")),
    }
}

/// When the server ends the lease, at the latest.
fn granted(world: &World, of: &CommandId) -> Outcome<Instant> {
    let driver = world.drivers.get(&of.driver).ok_or("the driver does not run")?;
    let sent = driver.commands().find(|(id, _)| *id == of.id);
    let key = sent
        .and_then(|(_, sent)| sent.command["key"].as_str())
        .ok_or("the command names no key")?;
    let fence = driver
        .received()
        .answers
        .get(&of.id)
        .and_then(|(_, answer)| answer["fence"].as_u64());
    let lock = world.client()?.find_lock(key).ok_or("the lock is free")?;
    let replied = Instant::now();
    let holder = lock.holders.iter().find(|holder| Some(holder.fence) == fence);
    let holder = holder.ok_or("others hold the lock")?;
    Ok(replied + Duration::from_millis(holder.lease_ms) + ROUNDING)
}
