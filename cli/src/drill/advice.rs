//! Why something happened, and which setting would change it.

use std::time::Duration;

use dlock_drill::checkers::Violation;
use dlock_drill::history::{History, Reply};
use dlock_drill::outcome::Phase;

use super::done::Drill;
use crate::duration;

/// A pause that needs no explanation.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// Settings, and how they help.
type Remedy = (&'static [&'static str], &'static str);

const NO_SETTING: &str = "contenders noticed no restart and no failover: no setting explains it. If nobody broke, renamed \
                          or restored a lock, report it";
const SLOW: &str =
    "contenders met no other server and no restart: the server or the network was slow or silent";

/// What was found, and how to change it.
#[derive(Clone, Debug)]
pub struct Advice {
    pub finding: String,
    pub cause: Cause,
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
        advice.extend(self.about(&phase.overlaps, "a lock had two holders at a time", second_holder));
        advice.extend(self.about(&phase.fences, "a fence did not rise", second_holder));
        if phase.overlaps.is_empty() {
            let what = "a holder was told that it had lost its lock";
            advice.extend(self.about(&phase.lost_locks, what, lost_lock));
        }
        for (violations, what) in [
            (&phase.lost_waiters, "a waiter was never answered"),
            (&phase.queue_jumps, "a waiter was passed by a later one"),
        ] {
            if !violations.is_empty() {
                advice.push(unexplained(what.to_owned(), NO_SETTING));
            }
        }
        advice.extend(self.about_pause(phase));
        advice
    }

    fn about(&self, violations: &[Violation], what: &str, remedy: fn(Cause) -> Remedy) -> Option<Advice> {
        let cause = violations.iter().map(|violation| self.cause(violation)).max()?;
        let (settings, remedy) = remedy(cause);
        Some(Advice {
            finding: match violations.len() {
                1 => what.to_owned(),
                n => format!("{what}, {n} times"),
            },
            cause,
            settings: settings.to_vec(),
            remedy: remedy.to_owned(),
        })
    }

    /// Of the servers whose replies prove a violation.
    fn cause(&self, violation: &Violation) -> Cause {
        let terms = violation.ops.iter().map(|n| self.history.ops[*n].server.term);
        match (terms.clone().min(), terms.max()) {
            (Some(first), Some(last)) if first != last => self.between(first, last),
            _ => Cause::None,
        }
    }

    /// What began in a phase.
    pub fn event(&self, phase: &Phase) -> Cause {
        let terms = (0..).zip(&self.terms);
        let started = terms.filter(|(_, term)| (phase.from..phase.to).contains(&term.since));
        let causes = started.filter_map(|(new, term)| {
            let mut earlier = (0..new).rev();
            let old = earlier.find(|old| self.terms[*old as usize].has_locks_of(term))?;
            Some(self.between(old, new))
        });
        causes.max().unwrap_or(Cause::None)
    }

    /// What happened between two terms.
    fn between(&self, old: u32, new: u32) -> Cause {
        let server = |term: u32| self.terms.get(term as usize).map(|term| &term.server);
        if went_on(&self.history, old, new) {
            Cause::TwoPrimaries
        } else if server(old) == server(new) {
            Cause::Restart
        } else {
            Cause::Failover
        }
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
            cause: event,
            settings,
            remedy: parts.join("; "),
        })
    }
}

/// Two holders, or fences that do not tell them apart.
fn second_holder(cause: Cause) -> Remedy {
    match cause {
        Cause::Failover => (
            &["dlock.failover-grace-ms"],
            "a failover loses the last grants, because replication is asynchronous: dlock.failover-grace-ms must be at \
             least the longest lease",
        ),
        Cause::TwoPrimaries => (
            &["min-replicas-to-write", "min-replicas-max-lag"],
            "an old primary went on after another one had taken over: min-replicas-to-write 1 and a short \
             min-replicas-max-lag stop it, and dlock.failover-grace-ms must be longer than that",
        ),
        cause => lost_lock(cause),
    }
}

fn lost_lock(cause: Cause) -> Remedy {
    match cause {
        Cause::None => (&[], NO_SETTING),
        Cause::Restart => (
            &["appendonly", "appendfsync", "dlock.startup-grace-ms"],
            "the server forgot grants when it was restarted: appendonly yes with appendfsync always keeps them; \
             dlock.startup-grace-ms of the longest lease or more prevents a second holder",
        ),
        Cause::Failover | Cause::TwoPrimaries => (
            &["dlock.min-sync-replicas"],
            "a failover loses the last grants, because replication is asynchronous: dlock.min-sync-replicas keeps them, \
             and a planned failover (FAILOVER) loses none",
        ),
    }
}

fn paused(pause: Duration) -> String {
    format!("no grants for {}", duration::format(pause))
}

fn unexplained(finding: String, remedy: &str) -> Advice {
    Advice {
        finding,
        cause: Cause::None,
        settings: Vec::new(),
        remedy: remedy.to_owned(),
    }
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
