//! What must hold of every history, whatever the scenario was about.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::driver::{Driver, Sent};
use crate::key;
use crate::outcome::Outcome;
use crate::output::Received;
use crate::world::World;

/// How late a driver may tell of a loss before the lock counts as held by two: the machine may be busy.
const TOLD_LATE: Duration = Duration::from_secs(2);

/// A grant that a driver answered.
struct Grant {
    place: String,
    key: String,
    is_exclusive: bool,
    /// If the scenario chose it: an owner shares its grants with itself.
    owner: Option<String>,
    fence: u64,
    asked: Instant,
    from: Instant,
    /// Until then the driver certainly believed to hold the lock, and the server did not know better.
    until: Instant,
}

/// Fails if a grant has no larger fence than an earlier one, if two certainly held a lock at once, or if a loss was told
/// of a lock that was not lost.
pub fn check(world: &World) -> Outcome {
    let now = Instant::now();
    let mut grants: BTreeMap<String, Vec<Grant>> = BTreeMap::new();
    for (name, driver) in &world.drivers {
        let received = driver.received();
        for grant in grants_of(name, driver, &received, world, now)? {
            grants.entry(grant.key.clone()).or_default().push(grant);
        }
        check_losses(name, driver, &received, world)?;
    }
    for grants in grants.values() {
        for (n, one) in grants.iter().enumerate() {
            grants[n + 1..]
                .iter()
                .try_for_each(|other| check_pair(one, other))?;
        }
    }
    Ok(())
}

fn grants_of(
    name: &str,
    driver: &Driver,
    received: &Received,
    world: &World,
    now: Instant,
) -> Outcome<Vec<Grant>> {
    let mut grants = Vec::new();
    for (id, sent) in driver.commands() {
        let Some((from, answer)) = received.answers.get(&id) else {
            continue;
        };
        if answer["held"] != true || !is_acquisition(sent) {
            continue;
        }
        let place = format!("{name}:{id}");
        let fence = answer["fence"].as_u64().filter(|fence| *fence > 0);
        let key = key::of(&sent.command);
        let deleted = world
            .losses
            .iter()
            .filter(|(at, lost)| at >= from && lost.as_ref().is_none_or(|lost| *lost == key));
        let ends = [
            ended_at(driver, id),
            received
                .lost
                .get(&id)
                .map(|(at, _)| at.checked_sub(TOLD_LATE).unwrap_or(*from)),
            driver.stopped_at,
            deleted.map(|(at, _)| *at).min(),
        ];
        grants.push(Grant {
            fence: fence.ok_or_else(|| format!("{place}: a grant without a fence: {answer}"))?,
            place,
            is_exclusive: sent.command.get("shared").is_none() && sent.command.get("limit").is_none(),
            owner: sent
                .command
                .get("owner")
                .and_then(Value::as_str)
                .map(str::to_owned),
            key,
            asked: sent.at,
            from: *from,
            until: ends.into_iter().flatten().min().unwrap_or(now),
        });
    }
    Ok(grants)
}

fn is_acquisition(sent: &Sent) -> bool {
    sent.command["do"] == "acquire" || sent.command["do"] == "try"
}

/// When the driver was told to give the lock back, or was busy and could not tell of a loss.
fn ended_at(driver: &Driver, id: u64) -> Option<Instant> {
    let mut later = driver.commands().filter(|(other, _)| *other > id);
    let end = later.find(|(_, Sent { command, .. })| {
        let is_release = command["do"] == "release" && command["of"].as_u64() == Some(id);
        is_release || command["do"] == "close" || command["do"] == "block"
    });
    end.map(|(_, sent)| sent.at)
}

fn check_pair(one: &Grant, other: &Grant) -> Outcome {
    if one.owner.is_some() && one.owner == other.owner {
        return Ok(());
    }
    let (first, second) = if one.fence < other.fence {
        (one, other)
    } else {
        (other, one)
    };
    let places = format!(
        "{} of `{}` has fence {}, {} has {}",
        first.place, first.key, first.fence, second.place, second.fence
    );
    if first.fence == second.fence || first.asked > second.from {
        return Err(format!("fences do not increase: {places}"));
    }
    let is_exclusive = first.is_exclusive || second.is_exclusive;
    if is_exclusive && first.from < second.until && second.from < first.until {
        return Err(format!("two hold a lock at once: {places}"));
    }
    Ok(())
}

/// A lock that a driver calls lost must be one that the scenario expects to be lost, that its own options end, or of which
/// an answer says so too.
fn check_losses(name: &str, driver: &Driver, received: &Received, world: &World) -> Outcome {
    for of in received.lost.keys() {
        let is_expected = world.losses_told.contains(&(name.to_owned(), *of));
        let mut acquisitions = driver.commands().filter(|(id, _)| id == of);
        let has_end = acquisitions
            .any(|(_, sent)| sent.command.contains_key("max_hold_ms") || sent.command.contains_key("renew"));
        let mut later = driver
            .commands()
            .filter(|(_, sent)| sent.command.get("of").and_then(Value::as_u64) == Some(*of));
        let is_confirmed = later.any(|(id, _)| {
            received
                .answers
                .get(&id)
                .is_some_and(|(_, answer)| answer["lost"] == Value::Bool(true))
        });
        if !is_expected && !has_end && !is_confirmed {
            return Err(format!("{name}:{of} was told to be lost, but was not"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grant that was asked for, answered and given up at these seconds.
    fn grant(fence: u64, [asked, from, until]: [u64; 3], is_exclusive: bool) -> Grant {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        Grant {
            place: format!("a:{fence}"),
            key: "k".into(),
            is_exclusive,
            owner: None,
            fence,
            asked: at(asked),
            from: at(from),
            until: at(until),
        }
    }

    #[test]
    fn grants_in_order_pass() {
        let first = grant(1, [1, 2, 5], true);
        check_pair(&first, &grant(2, [3, 6, 7], true)).expect("it waits for the first");
        check_pair(&grant(2, [3, 6, 7], true), &first).expect("the order does not matter");
        let shared = [grant(3, [1, 2, 5], false), grant(4, [1, 2, 5], false)];
        check_pair(&shared[0], &shared[1]).expect("they share it");
    }

    #[test]
    fn two_holders_at_once_are_found() {
        for is_exclusive in [true, false] {
            let error = check_pair(&grant(1, [1, 2, 5], true), &grant(2, [3, 4, 7], is_exclusive));
            assert!(error.expect_err("both hold it").contains("at once"));
        }
    }

    #[test]
    fn fence_that_does_not_increase_is_found() {
        for fence in [1, 2] {
            let error = check_pair(&grant(2, [1, 2, 3], true), &grant(fence, [4, 5, 6], true));
            assert!(error.expect_err("it is too small").contains("do not increase"));
        }
    }
}
