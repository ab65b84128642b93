//! What drivers sent, as it reached the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dlock_testkit::Request;

use crate::asked::Asked;
use crate::outcome::Outcome;
use crate::world::World;

/// How long an EXTEND may be under way: one that was sent before a RELEASE may arrive after it.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Fails if a request breaks a rule for clients.
pub fn check(world: &World) -> Outcome {
    check_requests(&world.requests(), &Asked::of(world))
}

fn check_requests(sent: &[Request], asked: &Asked) -> Outcome {
    let mut owners: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut requests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut released: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut inquirers: BTreeSet<&str> = BTreeSet::new();
    for command in sent {
        let [_, key, owner, ..] = &command.words[..] else {
            continue;
        };
        let fail = |what: &str| Err(format!("{what}: {}", command.words.join(" ")));
        let (id, fence) = (command.option("REQID"), command.option("FENCE"));
        if asked.has_chosen(owner) {
            continue;
        } else if command.is("DLOCK.ACQUIRE") {
            let Some(id) = id else {
                return fail("an ACQUIRE without REQID");
            };
            let is_known = *owners.entry(owner).or_insert((key, id)) == (key, id);
            if !is_known && !asked.is_short(key) {
                return fail("an owner has a second acquisition");
            }
            let requests = requests.entry(key).or_default();
            requests.insert(owner);
            if requests.len() > asked.acquisitions(key) {
                return fail("more owners than acquisitions: a retry took a new one");
            }
        } else if command.is("DLOCK.RELEASE") {
            if id.is_none() && fence.is_none() {
                return fail("a RELEASE without FENCE and REQID");
            }
            released.entry(owner).or_insert(command.at);
        } else if command.is("DLOCK.EXTEND") {
            // Without both it asks why its owner waits, once.
            if id.is_none() && fence.is_none() && !inquirers.insert(owner) {
                return fail("an EXTEND without FENCE and REQID");
            }
            if released
                .get(owner.as_str())
                .is_some_and(|at| command.at > *at + UNDER_WAY)
            {
                return fail("an EXTEND after the RELEASE");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Requests, at these seconds.
    fn check(lines: &[(f64, &str)]) -> Outcome {
        let start = Instant::now();
        let sent = lines.iter().map(|(at, line)| Request {
            at: start + Duration::from_secs_f64(*at),
            words: line.split(' ').map(str::to_owned).collect(),
        });
        let sent: Vec<_> = sent.collect();
        let mut asked = Asked::default();
        let command = json!({"do": "acquire", "key": "k", "lease_ms": 30_000});
        asked.add(command.as_object().expect("it is an object"));
        check_requests(&sent, &asked)
    }

    #[test]
    fn requests_that_follow_the_rules_pass() {
        check(&[
            (1.1, "DLOCK.ACQUIRE k x 30000 QUEUE i 0 REQID 1"),
            (1.2, "DLOCK.ACQUIRE k x 30000 QUEUE i 0 REQID 1"),
            (1.3, "DLOCK.GRANTS i 0"),
            (2.0, "DLOCK.EXTEND k x 30000 FENCE 7"),
            (3.0, "DLOCK.RELEASE k x FENCE 7 REQID 1"),
            (3.5, "DLOCK.EXTEND k x 30000 FENCE 7"),
            (9.0, "DLOCK.RELEASE k x REQID 1"),
        ])
        .expect("all of this is allowed");
    }

    #[test]
    fn request_that_breaks_a_rule_is_found() {
        let first = (1.0, "DLOCK.ACQUIRE k x 30000 REQID 1");
        for (at, line, expected) in [
            (2.0, "DLOCK.ACQUIRE k y 30000", "without REQID"),
            (2.0, "DLOCK.ACQUIRE k x 30000 REQID 2", "second acquisition"),
            (
                2.0,
                "DLOCK.ACQUIRE k y 30000 REQID 2",
                "more owners than acquisitions",
            ),
            (2.0, "DLOCK.RELEASE k x", "without FENCE and REQID"),
        ] {
            let error = check(&[first, (at, line)]).expect_err(line);
            assert!(error.contains(expected), "{error}");
        }
        let twice = (2.0, "DLOCK.EXTEND k x 1");
        check(&[first, twice]).expect("it asks why it waits");
        let error = check(&[first, twice, twice]).expect_err("it asks twice");
        assert!(error.contains("an EXTEND without FENCE"), "{error}");
        let late = [
            first,
            (2.0, "DLOCK.RELEASE k x FENCE 7"),
            (3.5, "DLOCK.EXTEND k x 1 FENCE 7"),
        ];
        let error = check(&late).expect_err("it is late");
        assert!(error.contains("an EXTEND after the RELEASE"), "{error}");
    }
}
