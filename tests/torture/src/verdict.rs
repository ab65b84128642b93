//! What the checkers say about a scenario.

use crate::checkers::{
    MissingReplies, Rule, Violation, broken_leases, lost_writes, overlaps, queue_jumps, unclean_final_states,
    wrong_fences, wrong_replies, wrong_restores,
};
use crate::history::{History, Reply};

/// What must hold in a scenario, beside what always must.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What is known to break here, and must be seen to: it shows that the harness looks.
    pub expected: Option<Rule>,
    /// Whether nothing that was replied may be lost.
    pub lossless: bool,
    /// Whether the network may swallow replies.
    pub missing_replies: MissingReplies,
}

impl Rules {
    /// One live server, and nothing but time and clients.
    pub const STRICT: Self = Self {
        expected: None,
        lossless: true,
        missing_replies: MissingReplies::Forbidden,
    };
}

/// What a scenario did and what came of it.
#[derive(Debug)]
pub struct Verdict {
    /// Requests.
    pub ops: usize,
    /// Requests that were granted.
    pub grants: usize,
    /// Things done to servers, clients and the network.
    pub faults: usize,
    /// How often was seen what is known to break.
    pub expected: usize,
    /// What broke a rule, with the history that shows it.
    pub broken: Vec<(Violation, usize)>,
    /// What is known to break was not seen to.
    pub missed_expected: bool,
    /// The histories.
    pub histories: Vec<History>,
}

impl Verdict {
    /// Lets all checkers read the histories.
    pub fn of(histories: Vec<History>, rules: Rules) -> Self {
        let found = histories.iter().enumerate().flat_map(|(n, history)| {
            check(history, rules)
                .into_iter()
                .map(move |violation| (violation, n))
        });
        let (expected, broken): (Vec<_>, Vec<_>) =
            found.partition(|(violation, _)| Some(violation.rule) == rules.expected);
        let ops = || histories.iter().flat_map(|history| &history.ops);
        let is_grant = |reply: &Reply| matches!(reply, Reply::Granted { .. });
        Self {
            ops: ops().count(),
            grants: ops().filter(|op| is_grant(&op.reply)).count(),
            faults: histories.iter().map(|history| history.events.len()).sum(),
            expected: expected.len(),
            broken,
            missed_expected: rules.expected.is_some() && expected.is_empty(),
            histories,
        }
    }

    /// Whether all is as it must be.
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && !self.missed_expected
    }
}

fn check(history: &History, rules: Rules) -> Vec<Violation> {
    let mut found = overlaps(history);
    found.extend(wrong_fences(history));
    if rules.lossless {
        found.extend(broken_leases(history));
    }
    found.extend(lost_writes(history));
    found.extend(queue_jumps(history));
    found.extend(wrong_replies(history, rules.missing_replies));
    found.extend(wrong_restores(history));
    found.extend(unclean_final_states(history));
    found
}
