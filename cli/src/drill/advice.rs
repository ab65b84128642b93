//! Why something happened, and which setting would change it.

use std::time::Duration;

use dlock_drill::checkers::Violation;
use dlock_drill::history::{History, Reply};
use dlock_drill::outcome::Phase;

use super::done::Drill;
use super::route::Term;
use crate::doctor::Facts;
use crate::duration;

/// A pause that needs no explanation.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

const SLOW: &str =
    "contenders met no other server and no restart: the server or the network was slow or silent";

/// What was found, and how to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub finding: String,
    pub cause: &'static str,
    /// Names of settings of the server or the Sentinels. Empty: none changes it.
    pub settings: Vec<&'static str>,
    pub remedy: String,
}

/// What happened to servers between two grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Nothing that contenders noticed.
    None,
    /// The server was started again.
    Restart,
    /// Another server took over.
    Failover,
    /// Another server took over, and the old one went on.
    TwoPrimaries,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restart => "restart",
            Self::Failover => "failover",
            Self::TwoPrimaries => "two primaries",
        }
    }
}

impl Drill {
    /// All that a phase has shown.
    pub fn advice(&self, phase: &Phase) -> Vec<Advice> {
        let mut advice = Vec::new();
        advice.extend(self.about(&phase.overlaps, "a lock had two holders at a time"));
        advice.extend(self.about(&phase.fences, "a fence did not rise"));
        if phase.overlaps.is_empty() {
            let lost = "a holder was told that it had lost its lock";
            advice.extend(self.about(&phase.lost_locks, lost));
        }
        for (violations, what) in [
            (&phase.lost_waiters, "a waiter was never answered"),
            (&phase.queue_jumps, "a waiter was passed by a later one"),
        ] {
            if !violations.is_empty() {
                advice.push(no_setting(what.to_owned()));
            }
        }
        advice.extend(self.about_pause(phase));
        advice
    }

    fn about(&self, violations: &[Violation], what: &str) -> Option<Advice> {
        let cause = violations.iter().map(|violation| self.cause(violation)).max()?;
        let finding = match violations.len() {
            1 => what.to_owned(),
            n => format!("{what}, {n} times"),
        };
        let server = self.after(violations);
        Some(match cause {
            Cause::None => no_setting(finding),
            Cause::Restart => self.after_restart(finding, server),
            Cause::Failover => self.after_failover(finding, server),
            Cause::TwoPrimaries => Advice {
                finding,
                cause: cause.name(),
                settings: vec!["min-replicas-to-write", "min-replicas-max-lag"],
                remedy: "an old primary went on after another one had taken over: min-replicas-to-write 1 and a short \
                         min-replicas-max-lag stop it, and dlock.failover-grace-ms must be longer than that"
                    .to_owned(),
            },
        })
    }

    /// Of the servers whose replies prove a violation.
    pub fn cause(&self, violation: &Violation) -> Cause {
        let terms = violation.ops.iter().map(|n| self.history.ops[*n].server.term);
        let (Some(first), Some(last)) = (terms.clone().min(), terms.max()) else {
            return Cause::None;
        };
        match (self.term(first), self.term(last)) {
            (Some(old), Some(new)) if first != last => {
                if went_on(&self.history, first, last) {
                    Cause::TwoPrimaries
                } else if old.server == new.server {
                    Cause::Restart
                } else {
                    Cause::Failover
                }
            }
            _ => Cause::None,
        }
    }

    fn term(&self, number: u32) -> Option<&Term> {
        self.terms.get(number as usize)
    }

    /// What is known of the server that took over, or came back.
    fn after(&self, violations: &[Violation]) -> Option<&Facts> {
        let ops = violations.iter().flat_map(|violation| &violation.ops);
        let last = ops.map(|n| self.history.ops[*n].server.term).max()?;
        self.facts(&self.term(last)?.server)
    }

    /// Of the server at an address, or any, if a name or proxy stands for several.
    fn facts(&self, server: &str) -> Option<&Facts> {
        let known = self.deployment.iter().find(|facts| facts.server == server);
        known.or(self.deployment.first())
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.plan.lease_ms).unwrap_or(i64::MAX)
    }

    fn after_restart(&self, finding: String, server: Option<&Facts>) -> Advice {
        let value = |name| server.map_or("unknown", |facts| facts.config.get(name));
        let persistence = match value("appendonly") {
            "yes" => format!("appendfsync is {}", value("appendfsync")),
            other => format!("appendonly is {other}"),
        };
        Advice {
            finding,
            cause: Cause::Restart.name(),
            settings: vec!["appendonly", "appendfsync", "dlock.startup-grace-ms"],
            remedy: format!(
                "the server forgot grants when it was restarted ({persistence}): appendonly yes with appendfsync always \
                 keeps them; dlock.startup-grace-ms {} or more prevents a second holder",
                self.plan.lease_ms
            ),
        }
    }

    fn after_failover(&self, finding: String, server: Option<&Facts>) -> Advice {
        let grace_ms = server.and_then(|facts| facts.setting("dlock.failover-grace-ms"));
        let covers = grace_ms.is_some_and(|grace_ms| grace_ms < 0 || grace_ms >= self.lease_ms());
        let value = grace_ms.map_or("unknown".to_owned(), |ms| ms.to_string());
        let (settings, remedy) = match covers {
            false => (
                vec!["dlock.failover-grace-ms"],
                format!(
                    "a failover loses the last grants, because replication is asynchronous: dlock.failover-grace-ms, \
                     now {value}, must be at least the longest lease, here {}",
                    self.plan.lease_ms
                ),
            ),
            true => (
                vec![],
                "a failover loses the last grants, because replication is asynchronous: a planned one (FAILOVER) \
                 loses none"
                    .to_owned(),
            ),
        };
        Advice {
            finding,
            cause: Cause::Failover.name(),
            settings,
            remedy,
        }
    }

    /// What began in a phase.
    pub fn event(&self, phase: &Phase) -> Cause {
        let new = |term: &&Term| (phase.from..phase.to).contains(&term.since);
        let started = self.terms.iter().enumerate().filter(|(_, term)| new(term));
        let causes = started.filter_map(|(n, new)| {
            let earlier = &self.terms[..n];
            let old = earlier.iter().rposition(|old| old.has_locks_of(new))?;
            let numbers = (u32::try_from(old).ok()?, u32::try_from(n).ok()?);
            Some(match earlier[old].server == new.server {
                _ if went_on(&self.history, numbers.0, numbers.1) => Cause::TwoPrimaries,
                true => Cause::Restart,
                false => Cause::Failover,
            })
        });
        causes.max().unwrap_or(Cause::None)
    }

    fn about_pause(&self, phase: &Phase) -> Option<Advice> {
        let pause = Duration::from_micros(phase.longest_pause);
        if pause < SHORT_PAUSE {
            return None;
        }
        let event = self.event(phase);
        let (setting, grace) = match event {
            Cause::Restart => ("dlock.startup-grace-ms", "after the start"),
            Cause::Failover | Cause::TwoPrimaries => ("dlock.failover-grace-ms", "after the failover"),
            Cause::None => return Some(unexplained(paused(pause), SLOW)),
        };
        let (mut settings, mut parts) = (Vec::new(), Vec::new());
        let graces = self.deployment.iter().filter_map(|facts| facts.setting(setting));
        if let Some(ms) = graces.max().filter(|&ms| ms != 0) {
            settings.push(setting);
            let length = u64::try_from(ms).map_or("the longest lease".to_owned(), duration::format_ms);
            parts.push(format!("{length} {grace} are the grace period ({setting})"));
        }
        let down_after = self.deployment.iter().find_map(|facts| facts.down_after_ms);
        if let Some(ms) = down_after.filter(|_| event != Cause::Restart) {
            settings.push("down-after-milliseconds");
            let length = duration::format_ms(ms.unsigned_abs());
            parts.push(format!(
                "Sentinels wait for {length} before it (down-after-milliseconds)"
            ));
        }
        if settings.is_empty() {
            let others = "no grace period prolongs it: the command and the servers took that long, or the leases of \
                          holders that went away";
            parts.push(others.to_owned());
        }
        Some(Advice {
            finding: paused(pause),
            cause: event.name(),
            settings,
            remedy: parts.join("; "),
        })
    }
}

fn paused(pause: Duration) -> String {
    format!("no grants for {}", duration::format(pause))
}

fn unexplained(finding: String, remedy: &str) -> Advice {
    Advice {
        finding,
        cause: Cause::None.name(),
        settings: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

fn no_setting(finding: String) -> Advice {
    let remedy = "contenders noticed no restart and no failover: no setting explains it. If nobody broke, renamed or \
                  restored a lock, report it";
    unexplained(finding, remedy)
}

/// Whether a server granted or extended in its term after that of another one had begun to grant.
fn went_on(history: &History, old: u32, new: u32) -> bool {
    let of = |term: u32| {
        let ops = history.ops.iter();
        ops.filter(move |op| {
            op.server.term == term && matches!(op.reply, Reply::Granted { .. } | Reply::Lease(_))
        })
    };
    let began = of(new).map(|op| op.replied).min();
    began.is_some_and(|began| of(old).any(|op| op.sent > began))
}
