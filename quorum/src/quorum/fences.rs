//! The fence of a lock on several servers: the number under which a majority of them holds it. Pure.
//!
//! The servers nearly always grant it under the same number, that of the first server. Where they do not, the smaller
//! ones are raised. Only a number that a majority has confirmed is handed out: a later majority has a server in common
//! with that one, and gets a larger number there.

/// What is known of the fences of one acquisition, by server.
#[derive(Clone, Debug)]
pub(super) struct Fences {
    needed: usize,
    known: Vec<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    NotGranted,
    Exactly(u64),
    /// A request that raises it is in progress.
    Raising(u64),
    /// A request to raise it to this number was not answered.
    AtMost(u64),
}

impl Fences {
    pub fn new(servers: usize, needed: usize) -> Self {
        Self {
            needed,
            known: vec![Known::NotGranted; servers],
        }
    }

    /// The server has granted the lock.
    pub fn on_granted(&mut self, server: usize, fence: u64) {
        self.known[server] = Known::Exactly(fence);
    }

    /// The server has raised its fence. Ignored if the hold was lost meanwhile.
    pub fn on_raised(&mut self, server: usize, fence: u64) {
        if self.known[server] == Known::Raising(fence) {
            self.known[server] = Known::Exactly(fence);
        }
    }

    /// A request to raise the fence was not answered.
    pub fn on_unanswered(&mut self, server: usize) {
        if let Known::Raising(to) = self.known[server] {
            self.known[server] = Known::AtMost(to);
        }
    }

    /// The hold on the server was lost.
    pub fn on_lost(&mut self, server: usize) {
        self.known[server] = Known::NotGranted;
    }

    /// The number that a majority can get, and the servers whose fence has to be raised to it. Those count as being in
    /// progress. `None`: only further grants, or raises in progress, can help.
    pub fn raise(&mut self) -> Option<(u64, Vec<usize>)> {
        let to = self.target()?;
        let is_below = |known: &Known| match *known {
            Known::Exactly(fence) => fence < to,
            Known::AtMost(most) => most <= to,
            Known::NotGranted | Known::Raising(_) => false,
        };
        let below: Vec<usize> = (0..self.known.len())
            .filter(|&server| is_below(&self.known[server]))
            .collect();
        for &server in &below {
            self.known[server] = Known::Raising(to);
        }
        (!below.is_empty()).then_some((to, below))
    }

    /// The number under which a majority holds the lock.
    pub fn confirmed(&self) -> Option<u64> {
        self.known.iter().find_map(|known| match *known {
            Known::Exactly(fence) => {
                let count = self.known.iter().filter(|other| *other == known).count();
                (count >= self.needed).then_some(fence)
            }
            _ => None,
        })
    }

    /// The smallest number that a majority can get. A server that did not answer counts only if it is needed.
    fn target(&self) -> Option<u64> {
        let reachable = |known: &Known| match *known {
            Known::Exactly(fence) | Known::Raising(fence) => Some((false, fence)),
            Known::AtMost(most) => Some((true, most)),
            Known::NotGranted => None,
        };
        let mut reachable: Vec<(bool, u64)> = self.known.iter().filter_map(reachable).collect();
        reachable.sort_unstable();
        let majority = reachable.get(..self.needed)?;
        majority.iter().map(|&(_, fence)| fence).max()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What to do next.
    #[derive(Debug, PartialEq, Eq)]
    enum Next {
        Wait,
        Raise(u64, Vec<usize>),
        Confirmed(u64),
    }

    impl Fences {
        fn next(&mut self) -> Next {
            match self.confirmed() {
                Some(fence) => Next::Confirmed(fence),
                None => self
                    .raise()
                    .map_or(Next::Wait, |(to, below)| Next::Raise(to, below)),
            }
        }
    }

    /// Of five servers that have granted these fences in this order.
    fn granted(grants: &[(usize, u64)]) -> Fences {
        let mut fences = Fences::new(5, 3);
        for &(server, fence) in grants {
            fences.on_granted(server, fence);
        }
        fences
    }

    #[test]
    fn equal_fences_of_a_majority_are_confirmed_without_a_raise() {
        assert_eq!(granted(&[(0, 7), (1, 7)]).next(), Next::Wait);
        assert_eq!(granted(&[(0, 7), (1, 7), (4, 7)]).next(), Next::Confirmed(7));
        assert_eq!(
            granted(&[(0, 7), (1, 9), (2, 7), (3, 7)]).next(),
            Next::Confirmed(7)
        );
    }

    #[test]
    fn smaller_fences_are_raised_and_count_when_that_is_confirmed() {
        let mut fences = granted(&[(0, 7), (1, 9), (2, 7)]);
        assert_eq!(fences.next(), Next::Raise(9, vec![0, 2]));
        assert_eq!(fences.next(), Next::Wait, "in progress");
        fences.on_raised(0, 9);
        assert_eq!(fences.next(), Next::Wait);
        fences.on_raised(2, 9);
        assert_eq!(fences.next(), Next::Confirmed(9));
    }

    #[test]
    fn grants_that_a_majority_does_not_need_do_not_start_a_raise() {
        let mut fences = granted(&[(0, 7), (1, 8), (2, 8), (3, 20)]);
        assert_eq!(fences.next(), Next::Raise(8, vec![0]));
        fences.on_granted(4, 30);
        assert_eq!(fences.next(), Next::Wait);
        fences.on_raised(0, 8);
        assert_eq!(fences.next(), Next::Confirmed(8));
    }

    #[test]
    fn larger_grant_that_is_needed_starts_a_raise_of_all() {
        let mut fences = granted(&[(0, 7), (1, 7), (2, 8)]);
        assert_eq!(fences.next(), Next::Raise(8, vec![0, 1]));
        fences.on_raised(0, 8);
        fences.on_lost(1);
        assert_eq!(fences.next(), Next::Wait);
        fences.on_granted(3, 9);
        assert_eq!(fences.next(), Next::Raise(9, vec![0, 2]));
    }

    #[test]
    fn unanswered_raise_is_repeated_only_if_it_is_needed() {
        let mut fences = granted(&[(0, 7), (1, 9), (2, 9)]);
        assert_eq!(fences.next(), Next::Raise(9, vec![0]));
        fences.on_unanswered(0);
        assert_eq!(fences.next(), Next::Raise(9, vec![0]));
        fences.on_unanswered(0);
        fences.on_granted(3, 12);
        assert_eq!(fences.next(), Next::Raise(12, vec![0, 1, 2]));
    }

    #[test]
    fn late_confirmation_of_a_hold_that_was_lost_is_ignored() {
        let mut fences = granted(&[(0, 7), (1, 9), (2, 9)]);
        assert_eq!(fences.next(), Next::Raise(9, vec![0]));
        fences.on_lost(0);
        fences.on_granted(0, 11);
        fences.on_raised(0, 9);
        assert_ne!(fences.next(), Next::Confirmed(9));
    }

    /// What the servers do, and what the client learns of it.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Grant {
            fence: u64,
        },
        Lose,
        /// The raise in progress arrives, or not, and so does its reply.
        Raise {
            arrives: bool,
            is_answered: bool,
        },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (1..6_u64).prop_map(|fence| Event::Grant { fence }),
            1 => Just(Event::Lose),
            4 => any::<(bool, bool)>().prop_map(|(arrives, is_answered)| Event::Raise { arrives, is_answered }),
        ]
    }

    proptest! {
        /// Whatever gets lost, a confirmed fence is the fence of a majority.
        #[test]
        fn confirmed_fence_is_that_of_a_majority(events in prop::collection::vec((0..5_usize, event()), 0..60)) {
            let mut fences = Fences::new(5, 3);
            let mut servers: [Option<u64>; 5] = [None; 5];
            let mut raising: [Option<u64>; 5] = [None; 5];
            for (server, event) in events {
                match event {
                    Event::Grant { fence } if servers[server].is_none() => {
                        servers[server] = Some(fence);
                        fences.on_granted(server, fence);
                    }
                    Event::Lose => {
                        (servers[server], raising[server]) = (None, None);
                        fences.on_lost(server);
                    }
                    Event::Raise { arrives, is_answered } => if let Some(to) = raising[server].take() {
                        if arrives {
                            servers[server] = servers[server].max(Some(to));
                        }
                        if arrives && is_answered {
                            fences.on_raised(server, to);
                        } else {
                            fences.on_unanswered(server);
                        }
                    },
                    Event::Grant { .. } => {}
                }
                match fences.next() {
                    Next::Confirmed(fence) => {
                        prop_assert!(servers.iter().filter(|held| **held == Some(fence)).count() >= 3);
                    }
                    Next::Raise(to, below) => for server in below {
                        prop_assert!(raising[server].is_none() && servers[server].is_some_and(|held| held <= to));
                        raising[server] = Some(to);
                    },
                    Next::Wait => {}
                }
            }
            // When nothing gets lost any more, a majority of grants is enough.
            if servers.iter().flatten().count() >= 3 {
                for _ in 0..10 {
                    for server in 0..5 {
                        if let Some(to) = raising[server].take() {
                            servers[server] = Some(to);
                            fences.on_raised(server, to);
                        }
                    }
                    if let Next::Raise(to, below) = fences.next() {
                        below.into_iter().for_each(|server| raising[server] = Some(to));
                    }
                }
                prop_assert!(matches!(fences.next(), Next::Confirmed(_)));
            }
        }
    }
}
