//! A clock that stands still while clients are paused: by it, inboxes end for want of a reader.

use crate::time::Instant;

/// The pauses of clients, as far as looks at the server tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    looked: Option<Instant>,
    is_paused: bool,
    /// How long clients have been paused in all until the last look, rounded up to whole times between two looks.
    total_micros: i64,
}

/// How soon to look again: a shorter pause may go unnoticed.
const LOOK_MS: u64 = 50;

impl Pauses {
    /// Takes note of whether clients are paused at `now`.
    pub(super) fn look(&mut self, is_paused: bool, now: Instant) {
        let looked = self.looked.replace(now).unwrap_or(now);
        let was_paused = std::mem::replace(&mut self.is_paused, is_paused);
        if is_paused || was_paused {
            let elapsed = now.as_micros().saturating_sub(looked.as_micros());
            self.total_micros = self.total_micros.saturating_add(elapsed);
        }
    }

    /// What this clock shows at `now`.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        let running = self.looked.filter(|_| self.is_paused).unwrap_or(now);
        Instant::from_micros(running.as_micros().saturating_sub(self.total_micros))
    }

    /// When to look whether this clock shows `at`: not before, and often enough to see that clients are paused.
    pub(super) fn next_look(&self, at: Instant) -> Instant {
        let reached = Instant::from_micros(at.as_micros().saturating_add(self.total_micros));
        let look = self.looked.map_or(reached, |looked| looked.after_ms(LOOK_MS));
        if self.is_paused { look } else { look.min(reached) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::default().after_ms(ms)
    }

    #[test]
    fn clock_stands_still_while_clients_are_paused() {
        let mut pauses = Pauses::default();
        pauses.look(false, at(0));
        assert_eq!(pauses.clock(at(30)), at(30));
        // It began at 40, nobody knows.
        pauses.look(true, at(50));
        assert_eq!((pauses.clock(at(50)), pauses.clock(at(90))), (at(0), at(0)));
        pauses.look(true, at(100));
        // It ended at 120.
        pauses.look(false, at(150));
        assert_eq!((pauses.clock(at(150)), pauses.clock(at(170))), (at(0), at(20)));
    }

    #[test]
    fn next_look_is_soon_enough_to_see_a_pause() {
        let mut pauses = Pauses::default();
        pauses.look(false, at(100));
        assert_eq!(pauses.next_look(at(120)), at(120));
        assert_eq!(pauses.next_look(at(900)), at(150));
        pauses.look(true, at(150));
        assert_eq!(pauses.next_look(at(120)), at(200));
    }
}
