//! What the checkers say about a scenario.

use crate::checkers::{
    Rule, Silence, Violation, broken_leases, lost_elements, overlaps, overtaken, unclean_ends,
    without_one_answer, wrong_fences, wrongly_restored,
};
use crate::history::{Answer, History};

/// What must hold in a scenario, beside what always must.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What is known to break here, and must be seen to: it shows that the harness looks.
    pub expected: Option<Rule>,
    /// Whether nothing that was answered may be lost.
    pub lossless: bool,
    /// Whether the network may swallow answers.
    pub silence: Silence,
}

impl Rules {
    /// One live server, and nothing but time and clients.
    pub const STRICT: Self = Self {
        expected: None,
        lossless: true,
        silence: Silence::Forbidden,
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
    pub is_blind: bool,
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
        let is_grant = |answer: &Answer| matches!(answer, Answer::Granted { .. });
        Self {
            ops: ops().count(),
            grants: ops().filter(|op| is_grant(&op.answer)).count(),
            faults: histories.iter().map(|history| history.events.len()).sum(),
            expected: expected.len(),
            broken,
            is_blind: rules.expected.is_some() && expected.is_empty(),
            histories,
        }
    }

    /// Whether all is as it must be.
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && !self.is_blind
    }
}

fn check(history: &History, rules: Rules) -> Vec<Violation> {
    let mut found = overlaps(history);
    found.extend(wrong_fences(history));
    if rules.lossless {
        found.extend(broken_leases(history));
    }
    found.extend(lost_elements(history));
    found.extend(overtaken(history));
    found.extend(without_one_answer(history, rules.silence));
    found.extend(wrongly_restored(history));
    found.extend(unclean_ends(history));
    found
}
