//! Whether a lock on several servers is held, by the holds on them. Pure.

use std::time::Duration;

use redis_dlock_client::Lost;

use crate::majority::Majority;

/// A hold on one of the servers.
pub(crate) trait Member {
    fn remaining(&self) -> Duration;
    fn lost(&self) -> Option<Lost>;
}

/// A lock, and the holds that it consists of. Lost or given up, it stays so.
pub(crate) struct Standing<M> {
    majority: Majority,
    state: State,
    members: Vec<M>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    GivenUp,
    Lost(Lost),
}

impl<M: Member> Standing<M> {
    pub fn held(majority: Majority, members: Vec<M>) -> Self {
        Self {
            majority,
            state: State::Held,
            members,
        }
    }

    /// The holds on the servers, lost ones among them.
    pub fn members(&self) -> &[M] {
        &self.members
    }

    /// Adds a hold.
    pub fn join(&mut self, member: M) {
        self.members.push(member);
    }

    /// How long a majority of the holds lasts.
    pub fn remaining(&self) -> Duration {
        match self.state {
            State::Held => self.majority.remaining(self.members.iter().map(M::remaining)),
            State::GivenUp | State::Lost(_) => Duration::ZERO,
        }
    }

    /// Why the lock is lost, if it is.
    pub fn lost(&self) -> Option<Lost> {
        match self.state {
            State::Lost(lost) => Some(lost),
            State::GivenUp => None,
            State::Held if !self.remaining().is_zero() => None,
            State::Held => Some(self.majority.lost(self.members.iter().filter_map(M::lost))),
        }
    }

    /// A hold was lost. Why the lock is lost, if that was one too many.
    pub fn on_loss(&mut self) -> Option<Lost> {
        let lost = self.lost().filter(|_| self.state == State::Held)?;
        self.state = State::Lost(lost);
        Some(lost)
    }

    /// Gives the lock up: why it was lost before, if it was, and the holds to release. None if called again.
    pub fn give_up(&mut self) -> (Option<Lost>, Vec<M>) {
        let lost = self.lost();
        self.state = lost.map_or(State::GivenUp, State::Lost);
        (lost, std::mem::take(&mut self.members))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::Lost::{LeaseExpired, NotHeld, NotOwner};
    use super::*;

    /// How long it lasts, or why it is lost.
    #[derive(Clone)]
    struct Fake(Rc<Cell<Result<u64, Lost>>>);

    impl Fake {
        fn lasting(ms: u64) -> Self {
            Self(Rc::new(Cell::new(Ok(ms))))
        }

        fn lose(&self, reason: Lost) {
            self.0.set(Err(reason));
        }
    }

    impl Member for Fake {
        fn remaining(&self) -> Duration {
            Duration::from_millis(self.0.get().unwrap_or(0))
        }

        fn lost(&self) -> Option<Lost> {
            self.0.get().err()
        }
    }

    /// A lock on three servers.
    fn held() -> (Standing<Fake>, [Fake; 3]) {
        let members = [900, 100, 500].map(Fake::lasting);
        (Standing::held(Majority::of(3), members.to_vec()), members)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn lock_lasts_as_long_as_holds_on_a_majority() {
        let (mut lock, members) = held();
        assert_eq!(lock.remaining(), ms(500));
        members[0].lose(NotHeld);
        assert_eq!((lock.remaining(), lock.lost()), (ms(100), None));
        assert_eq!(lock.on_loss(), None, "a majority is left");
        members[2].lose(NotOwner);
        assert_eq!((lock.remaining(), lock.lost()), (ms(0), Some(NotHeld)));
    }

    #[test]
    fn loss_is_reported_once_with_its_reason_and_is_final() {
        let (mut lock, members) = held();
        members[0].lose(NotHeld);
        members[1].lose(NotHeld);
        assert_eq!(lock.on_loss(), Some(NotHeld));
        // Whatever the holds on the servers do afterwards.
        for change in [Err(LeaseExpired), Ok(700)] {
            members.iter().for_each(|member| member.0.set(change));
            assert_eq!(lock.on_loss(), None);
            assert_eq!((lock.remaining(), lock.lost()), (ms(0), Some(NotHeld)));
        }
    }

    #[test]
    fn lost_lock_keeps_its_holds_until_it_is_given_up() {
        let (mut lock, members) = held();
        members[..2].iter().for_each(|member| member.lose(LeaseExpired));
        assert_eq!(lock.on_loss(), Some(LeaseExpired));
        assert_eq!(lock.members().len(), 3);
        let (lost, to_release) = lock.give_up();
        assert_eq!((lost, to_release.len()), (Some(LeaseExpired), 3));
        assert_eq!(lock.lost(), Some(LeaseExpired));
    }

    #[test]
    fn loss_that_nothing_has_noticed_is_reported_when_the_lock_is_given_up() {
        let (mut lock, members) = held();
        members[..2].iter().for_each(|member| member.lose(LeaseExpired));
        assert_eq!(lock.give_up().0, Some(LeaseExpired));
        assert_eq!(lock.on_loss(), None);
    }

    #[test]
    fn lock_that_was_given_up_is_neither_held_nor_lost() {
        let (mut lock, members) = held();
        let (lost, to_release) = lock.give_up();
        assert_eq!((lost, to_release.len()), (None, 3));
        // As releases do.
        members.iter().for_each(|member| member.lose(LeaseExpired));
        assert_eq!((lock.remaining(), lock.lost()), (ms(0), None));
        assert_eq!(lock.on_loss(), None);
        let (lost, to_release) = lock.give_up();
        assert_eq!((lost, to_release.len()), (None, 0));
    }

    #[test]
    fn late_hold_counts() {
        let (_, members) = held();
        let mut five = Standing::held(Majority::of(5), members.to_vec());
        assert_eq!(five.remaining(), ms(100));
        five.join(Fake::lasting(800));
        assert_eq!(five.remaining(), ms(500));
    }
}
