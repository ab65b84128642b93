//! Many requests at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::driver::Driver;
use crate::outcome::{Outcome, within};
use crate::scenario::Fields;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(30);
const LEASE_MS: u64 = 120_000;

/// `crowd`: a driver waits for `acquires` locks of `keys` keys at once, over at most `connections`, and gets each in
/// its turn. `cancel` of the requests are cancelled, chosen by `seed`: half of them before anything is granted.
pub fn crowd(world: &mut World, fields: &mut Fields) -> Outcome {
    let name = fields.take_text("crowd")?;
    let mut number = |name| fields.take_number(name);
    let acquires = number("acquires")?.unwrap_or_default();
    let keys = number("keys")?.unwrap_or(1);
    let cancel = number("cancel")?.unwrap_or_default() as usize;
    let mut random = Rng::with_seed(number("seed")?.unwrap_or_default());
    let connections = number("connections")?.unwrap_or(u64::MAX) as usize;
    let limit = fields.take_limit()?;

    let mut client = world.client()?;
    let kit: Vec<String> = (0..keys).map(|key| format!("crowd:{key} kit")).collect();
    for lock in &kit {
        client.acquire(&format!("{lock} {LEASE_MS}"));
    }
    let driver = world.driver(&name)?;
    let mut crowd = Crowd::default();
    for round in 1..=acquires / keys {
        for key in 0..keys {
            let id = driver.send(command(
                "acquire",
                &[
                    ("key", json!(format!("crowd:{key}"))),
                    ("lease_ms", json!(LEASE_MS)),
                ],
            ))?;
            crowd.key_of.insert(id, key);
            crowd.open.insert(id);
        }
        // So that the order of arrival is known for each lock.
        within(PATIENCE, || match client.stat("dlock_waiters") as u64 {
            waiters if waiters == round * keys => Ok(()),
            waiters => Err(format!("{waiters} requests wait, not {}", round * keys)),
        })?;
    }
    let used = driver.proxy.connections();
    if used > connections {
        return Err(format!("{acquires} requests wait over {used} connections"));
    }
    let mut to_cancel: Vec<u64> = crowd.open.iter().copied().collect();
    random.shuffle(&mut to_cancel);
    to_cancel.truncate(cancel);
    for id in to_cancel.split_off(cancel / 2) {
        crowd.cancel(driver, id)?;
    }
    for lock in &kit {
        client.release(lock);
    }
    crowd.serve(driver, to_cancel, limit)
}

/// Requests of one driver, by number.
#[derive(Default)]
struct Crowd {
    key_of: BTreeMap<u64, u64>,
    /// Without an answer.
    open: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    /// The releases that were sent.
    releases: BTreeSet<u64>,
}

impl Crowd {
    fn cancel(&mut self, driver: &mut Driver, id: u64) -> Outcome {
        self.cancelled.insert(id);
        driver.send(command("cancel", &[("of", json!(id))])).map(drop)
    }

    /// Releases what is granted, and cancels one request after each grant, until every request has its answer.
    fn serve(&mut self, driver: &mut Driver, mut to_cancel: Vec<u64>, limit: Duration) -> Outcome {
        let end = Instant::now() + limit;
        while !self.open.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let answers = driver.any_answer(&self.open, left);
            if answers.is_empty() {
                return Err(format!(
                    "{} requests have no answer after {limit:?}",
                    self.open.len()
                ));
            }
            for (id, answer) in answers {
                self.on_answer(driver, id, &answer)?;
                if let Some(id) = to_cancel.pop() {
                    self.cancel(driver, id)?;
                }
            }
        }
        for id in &self.releases {
            let (_, answer) = driver.answer(*id, PATIENCE)?;
            if answer["released"] != true {
                return Err(format!("a release of the crowd: {answer}"));
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, driver: &mut Driver, id: u64, answer: &Value) -> Outcome {
        self.open.remove(&id);
        if answer["held"] == true {
            let earlier = self.open.range(..id).find(|earlier| {
                self.key_of[earlier] == self.key_of[&id] && !self.cancelled.contains(earlier)
            });
            if let Some(earlier) = earlier {
                return Err(format!(
                    "request {id} is granted before {earlier}, which came first"
                ));
            }
            self.releases
                .insert(driver.send(command("release", &[("of", json!(id))]))?);
            Ok(())
        } else if answer["cancelled"] == true && self.cancelled.contains(&id) {
            Ok(())
        } else {
            Err(format!("a request of the crowd: {answer}"))
        }
    }
}

fn command(name: &str, fields: &[(&str, Value)]) -> Map<String, Value> {
    let fields = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    fields.chain([("do".to_owned(), json!(name))]).collect()
}
