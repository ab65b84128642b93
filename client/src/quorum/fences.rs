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

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for grants, or for raises in progress.
    Wait,
    /// Raise the fence on these servers.
    Raise(u64, Vec<usize>),
    /// A majority holds the lock under this fence.
    Confirmed(u64),
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

    /// Decides what to do. Raises that it returns count as being in progress.
    pub fn next(&mut self) -> Next {
        if let Some(fence) = self.confirmed() {
            return Next::Confirmed(fence);
        }
        let Some(to) = self.target() else {
            return Next::Wait;
        };
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
        if below.is_empty() {
            Next::Wait
        } else {
            Next::Raise(to, below)
        }
    }

    /// The number under which a majority holds the lock.
    fn confirmed(&self) -> Option<u64> {
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
