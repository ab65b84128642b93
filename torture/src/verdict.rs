//! What the checkers say about a scenario.

use crate::checkers::{
    Silence, Violation, broken_leases, lost_elements, overlaps, overtaken, unclean_ends, without_one_answer,
    wrong_fences,
};
use crate::history::{Answer, History};

/// What must hold in a scenario, beside fences, order, answers and a clean end, which always must.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether a lock may have too many holders.
    pub overlaps: Overlaps,
    /// Whether nothing that was answered may be lost.
    pub lossless: bool,
    /// Whether the network may swallow answers.
    pub silence: Silence,
}

/// See [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlaps {
    /// None may be seen.
    Forbidden,
    /// Some must be seen: the scenario is known to be unsafe, and shows that the harness looks.
    Expected,
}

impl Rules {
    /// One live server, and nothing but time and clients.
    pub const STRICT: Self = Self {
        overlaps: Overlaps::Forbidden,
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
    /// Overlaps, those included that were expected.
    pub overlaps: usize,
    /// What broke a rule, with the history that shows it.
    pub broken: Vec<(Violation, usize)>,
    /// Overlaps were expected and none was seen.
    pub is_blind: bool,
    /// The histories.
    pub histories: Vec<History>,
}

impl Verdict {
    /// Lets all checkers read the histories.
    pub fn of(histories: Vec<History>, rules: Rules) -> Self {
        let mut broken = Vec::new();
        let mut seen = 0;
        for (n, history) in histories.iter().enumerate() {
            let overlaps = overlaps(history);
            seen += overlaps.len();
            if rules.overlaps == Overlaps::Forbidden {
                broken.extend(overlaps.into_iter().map(|violation| (violation, n)));
            }
            broken.extend(
                all_but_overlaps(history, rules)
                    .into_iter()
                    .map(|violation| (violation, n)),
            );
        }
        let ops = || histories.iter().flat_map(|history| &history.ops);
        let is_grant = |answer: &Answer| matches!(answer, Answer::Granted { .. });
        Self {
            ops: ops().count(),
            grants: ops().filter(|op| is_grant(&op.answer)).count(),
            faults: histories.iter().map(|history| history.events.len()).sum(),
            overlaps: seen,
            broken,
            is_blind: rules.overlaps == Overlaps::Expected && seen == 0,
            histories,
        }
    }

    /// Whether all is as it must be.
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && !self.is_blind
    }
}

fn all_but_overlaps(history: &History, rules: Rules) -> Vec<Violation> {
    let mut found = wrong_fences(history);
    if rules.lossless {
        found.extend(broken_leases(history));
    }
    found.extend(lost_elements(history));
    found.extend(overtaken(history));
    found.extend(without_one_answer(history, rules.silence));
    found.extend(unclean_ends(history));
    found
}
