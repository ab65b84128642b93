//! Which servers are down, as far as this client knows. Pure.

/// Of all servers, in the configured order, whether they are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    is_up: Vec<bool>,
    needed: usize,
}

impl Health {
    /// All are up until the contrary is known.
    pub fn new(servers: usize, needed: usize) -> Self {
        Self {
            is_up: vec![true; servers],
            needed,
        }
    }

    pub fn is_up(&self, server: usize) -> bool {
        self.is_up[server]
    }

    /// Whether that is news.
    pub fn set(&mut self, server: usize, is_up: bool) -> bool {
        std::mem::replace(&mut self.is_up[server], is_up) != is_up
    }

    /// The server whose queue is that of the lock, apart from those that rejected the request.
    pub fn first(&self, rejected: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.is_up.len()).find(|&server| self.is_up[server] && !rejected(server))
    }

    pub fn has_majority(&self) -> bool {
        self.is_up.iter().filter(|is_up| **is_up).count() >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_server_is_the_first_that_is_up_and_has_not_rejected() {
        let mut health = Health::new(3, 2);
        assert_eq!(health.first(|_| false), Some(0));
        assert_eq!(health.first(|server| server == 0), Some(1));
        assert!(health.set(0, false) && !health.set(0, false));
        assert_eq!(health.first(|_| false), Some(1));
        assert!(health.has_majority() && !health.is_up(0));
        health.set(2, false);
        assert!(!health.has_majority());
        assert_eq!(health.first(|server| server == 1), None);
        assert!(health.set(0, true));
        assert_eq!(health.first(|_| false), Some(0));
    }
}
