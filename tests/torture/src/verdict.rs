//! The result of a scenario.

use crate::checkers::{
    Rule, Violation, broken_leases, lost_elements, misordered_writes, overlaps, queue_jumps,
    unclean_final_states, wrong_fences, wrong_replies, wrong_restores,
};
use crate::history::{GUARDED, History, Reply};
use crate::specification::{self, Found, Part};

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A rule that this scenario is known to violate. It must be detected, which shows that the checkers work.
    pub expected: Option<Rule>,
    /// Whether a lock may have too many holders.
    pub may_overlap: bool,
    /// Whether acknowledged changes must not be lost.
    pub lossless: bool,
    /// Whether clients connect through a proxy that drops data: then a reply may be missing on an open connection.
    pub may_miss_replies: bool,
    /// How much is to be a run of the specification.
    pub specified: Part,
}

impl Rules {
    /// All rules, for a healthy server.
    pub const STRICT: Self = Self {
        expected: None,
        may_overlap: false,
        lossless: true,
        may_miss_replies: false,
        specified: Part::Whole,
    };
}

#[derive(Debug)]
pub struct Verdict {
    pub ops: usize,
    pub grants: usize,
    pub faults: usize,
    /// Number of writes that GUARD refused.
    pub refused: usize,
    /// Number of guarded writes that survived to the end.
    pub survived: usize,
    /// Number of requests in runs of the specification, and of locks for which the search has given up.
    pub specified: usize,
    pub undecided: usize,
    /// Number of expected violations.
    pub expected: usize,
    /// Violations with the index of their history.
    pub violations: Vec<(Violation, usize)>,
    /// The expected violation was not detected.
    pub missed_expected: bool,
    pub histories: Vec<History>,
}

impl Verdict {
    pub fn of(histories: Vec<History>, rules: Rules) -> Self {
        let (mut specified, mut undecided) = (0, 0);
        let found = histories.iter().enumerate().flat_map(|(n, history)| {
            let mut found = check(history, rules);
            for checked in specification::check(history, rules.specified) {
                match checked.found {
                    Found::Run => specified += checked.requests,
                    Found::Undecided => undecided += 1,
                    Found::NoRun(_) => {}
                }
                found.extend(checked.violation());
            }
            found.into_iter().map(move |violation| (violation, n))
        });
        let (expected, violations): (Vec<_>, Vec<_>) =
            found.partition(|(violation, _)| Some(violation.rule) == rules.expected);
        let ops = || histories.iter().flat_map(|history| &history.ops);
        let is_grant = |reply: &Reply| matches!(reply, Reply::Granted { .. });
        Self {
            ops: ops().count(),
            grants: ops().filter(|op| is_grant(&op.reply)).count(),
            refused: ops().filter(|op| op.is_refused_push()).count(),
            survived: histories.iter().map(guarded_elements).sum(),
            faults: histories.iter().map(|history| history.events.len()).sum(),
            specified,
            undecided,
            expected: expected.len(),
            violations,
            missed_expected: rules.expected.is_some() && expected.is_empty(),
            histories,
        }
    }

    pub fn holds(&self) -> bool {
        self.violations.is_empty() && !self.missed_expected
    }
}

fn guarded_elements(history: &History) -> usize {
    let lists = history.lists.iter();
    let guarded = lists.filter(|list| list.is_final && list.name.ends_with(GUARDED));
    guarded.map(|list| list.elements.len()).sum()
}

fn check(history: &History, rules: Rules) -> Vec<Violation> {
    let mut found = wrong_fences(history);
    if !rules.may_overlap {
        found.extend(overlaps(history));
    }
    if rules.lossless {
        found.extend(broken_leases(history));
    }
    found.extend(misordered_writes(history));
    found.extend(lost_elements(history, rules.lossless));
    found.extend(queue_jumps(history));
    found.extend(wrong_replies(history, rules.may_miss_replies));
    found.extend(wrong_restores(history));
    found.extend(unclean_final_states(history));
    found
}
