//! Random schedules, core and model side by side.

use proptest::prelude::*;

use super::naive::Model;
use super::ops::{Action, Micros};
use super::schedule::{Memory, Pass, Step, Told, config, schedule};
use super::subject::Subject;
use crate::fence::AdvanceReason;

struct Pair {
    subject: Subject,
    model: Model,
    memory: Memory,
}

impl Pair {
    fn new() -> Self {
        let subject = Subject::new(0);
        let model = Model {
            last_fence: subject.engine.fences.last(),
            ..Model::default()
        };
        Self {
            subject,
            model,
            memory: Memory::default(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ask { owner, action, told } => self.ask(owner, action, told),
            Step::Pass(pass) => self.pass(pass),
            Step::Sweep => self.subject.sweep(),
            Step::Restart { grace_ms, origin } => {
                self.restart(origin);
                self.take_over(AdvanceReason::Start, grace_ms);
            }
            // There is one server here: nothing can be lost.
            Step::Promotion { grace_ms, .. } => self.take_over(AdvanceReason::Promotion, grace_ms),
            Step::Evictable(evictable) => {
                self.subject.evictable = evictable;
                self.model.evictable = evictable;
            }
        }
        assert_eq!(self.subject.view(), self.model.view(), "after {step:?}");
    }

    fn ask(&mut self, owner: u8, action: Action, told: Told) {
        let request = self.memory.request(owner, action, told);
        let expected = self.model.ask(&request);
        let answer = self.subject.ask(&request);
        assert_eq!(answer, expected, "to {request:?}");
        self.memory.note(owner, &answer);
    }

    fn pass(&mut self, pass: Pass) {
        let lease_ends: Vec<_> = self.model.live().map(|holder| holder.lease_end).collect();
        self.model.now = pass.target(self.model.now, &lease_ends, self.model.grace_end);
        self.subject.now = self.model.now;
    }

    fn restart(&mut self, origin: Micros) {
        let Subject { now, evictable, .. } = self.subject;
        let saved = self.subject.save();
        self.subject = Subject {
            evictable,
            ..Subject::load(&saved, now, origin)
        };
        self.model.restart();
    }

    fn take_over(&mut self, raise: AdvanceReason, grace_ms: u64) {
        self.subject.take_over(raise, grace_ms);
        self.model.take_over(self.subject.engine.fences.last(), grace_ms);
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn single_lock_matches_model_in_random_schedules(schedule in schedule()) {
        let mut pair = Pair::new();
        for step in schedule {
            pair.step(step);
        }
    }
}
