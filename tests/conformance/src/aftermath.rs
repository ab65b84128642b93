//! What is left when a scenario has ended: nothing.

use std::time::Duration;

use serde_json::{Map, json};

use crate::driver::Driver;
use crate::outcome::{Outcome, within};
use crate::world::World;
use crate::{history, requests};

/// Longer than an inbox lasts without a reader, shorter than a lease that was forgotten.
const PATIENCE: Duration = Duration::from_secs(12);
const EMPTY: [&str; 4] = [
    "dlock_locks",
    "dlock_waiters",
    "dlock_inboxes",
    "dlock_inbox_answers",
];

/// Ends the drivers, then checks servers, history and requests.
pub fn check(world: &mut World) -> Outcome {
    for (name, driver) in &mut world.drivers {
        end(driver).map_err(|error| format!("driver {name}: {error}"))?;
    }
    let mut client = world.client()?;
    within(PATIENCE, || {
        let info = client.info_section("dlock");
        let left = EMPTY
            .into_iter()
            .map(|field| (field, info.get(field).map_or("?", String::as_str)));
        let left = left
            .filter(|(_, left)| *left != "0")
            .map(|(field, left)| format!("{field} is {left}"));
        let left: Vec<String> = left.collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left behind: {}", left.join(", ")))
        }
    })?;
    let errors = client.stat("dlock_internal_errors");
    if errors != 0 {
        return Err(format!(
            "dlock_internal_errors is {errors}\n{}",
            world.server.log()
        ));
    }
    history::check(world)?;
    requests::check(world)
}

/// The driver must have answered everything, and exit with 0 when it is told to.
fn end(driver: &mut Driver) -> Outcome {
    if driver.is_killed() {
        return Ok(());
    }
    let unanswered = driver.unanswered();
    if !unanswered.is_empty() {
        return Err(format!("no answer to {unanswered:?}"));
    }
    if !driver.has_ended() {
        let is_closed = driver.commands().any(|(_, sent)| sent.command["do"] == "close");
        if !is_closed {
            let id = driver.send(Map::from_iter([("do".to_owned(), json!("close"))]))?;
            driver.answer(id, PATIENCE)?;
        }
        driver.expect_exit()?;
    }
    match driver.violations() {
        violations if violations.is_empty() => Ok(()),
        violations => Err(violations.join("; ")),
    }
}
