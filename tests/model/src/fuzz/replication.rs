//! Any sequence of replicated commands.
//!
//! ```text
//! input   = record*
//! record  = 0 length change            DLOCK.APPLY, also 1
//!         | 2 length fence \n grace    DLOCK.SYNC
//!         | 3 milliseconds             time passes
//! length  = two bytes, little-endian; milliseconds = one byte
//! ```

use super::choices::Choices;
use super::holders::{assert_sound, who};
use dlock_core::{
    Checkpoint, Effects, Instant, Lock, MAX_FENCE, ServerState, decode_lock, encode_lock, number,
};

/// The longest grace period in a checkpoint: ten years.
const LONGEST_GRACE_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;
/// The clock of the second replica, and how far it lags.
const OTHER_CLOCK_MICROS: i64 = -987_654_321_000;
const LAG_MS: u64 = 40;

/// A replica rejects a command without any effect, or has a sound lock afterwards that can be stored and loaded. A
/// second replica, which lags and has another clock, has the same holders.
pub fn replication(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut replica = Replica::new(0);
    let mut late = Replica::new(OTHER_CLOCK_MICROS);
    while !choices.is_empty() {
        let kind = choices.byte() % 4;
        if kind == 3 {
            let ms = u64::from(choices.byte());
            replica.now = replica.now.after_ms(ms);
            late.now = late.now.after_ms(ms);
            continue;
        }
        let command = choices.bytes();
        let accepted = replica.execute(kind, command);
        let on_time = late.now;
        late.now = on_time.after_ms(LAG_MS);
        assert_eq!(late.execute(kind, command), accepted);
        late.now = on_time;
        assert_eq!(who(&late.lock), who(&replica.lock));
        assert_eq!(late.server.fences, replica.server.fences);
    }
}

struct Replica {
    lock: Lock,
    server: ServerState,
    now: Instant,
}

impl Replica {
    fn new(clock_micros: i64) -> Self {
        Self {
            lock: Lock::default(),
            server: ServerState::default(),
            now: Instant::from_micros(clock_micros),
        }
    }

    /// Returns whether the command was accepted.
    fn execute(&mut self, kind: u8, command: &[u8]) -> bool {
        match kind {
            0 | 1 => self.apply(command),
            _ => self.checkpoint(command),
        }
    }

    fn apply(&mut self, change: &[u8]) -> bool {
        let (before, known_before) = (self.lock.clone(), self.server.fences.known());
        let mut effects = Effects::default();
        let applied = self.server.apply(self.now, &mut self.lock, change, &mut effects);
        assert_eq!(
            applied.is_ok(),
            effects.is_changed,
            "a replica propagates what it applied"
        );
        if applied.is_err() {
            assert!(effects.events.is_empty());
            assert_eq!((&self.lock, self.server.fences.known()), (&before, known_before));
        }
        self.check();
        applied.is_ok()
    }

    fn checkpoint(&mut self, command: &[u8]) -> bool {
        let mut texts = command.split(|byte| *byte == b'\n');
        let mut next = |max| number("a number", texts.next().unwrap_or_default(), 0, max);
        let (Ok(fence), Ok(left_ms)) = (next(MAX_FENCE), next(LONGEST_GRACE_MS)) else {
            return false;
        };
        let end_before = self.server.grace.end();
        let grace_left_ms = left_ms;
        self.server
            .apply_checkpoint(Checkpoint { fence, grace_left_ms }, self.now);
        assert!(self.server.fences.known() >= fence && self.server.grace.left_ms(self.now) >= left_ms);
        assert!(self.server.grace.end() >= end_before);
        true
    }

    /// The lock is sound, its fences are known, and storing and loading it gives the same lock.
    fn check(&self) {
        assert_sound(&self.lock);
        let known = self.server.fences.known();
        assert!(self.lock.holders().iter().all(|holder| holder.fence() <= known));
        if self.lock.is_free() {
            return;
        }
        let clock = self.server.clock(self.now);
        let read = decode_lock(&encode_lock(&self.lock, clock), self.now).expect("a lock that was encoded");
        assert_eq!(who(&read), who(&self.lock));
        for (read, stored) in read.holders().iter().zip(self.lock.holders()) {
            assert!(read.lease_end(clock) >= stored.lease_end(clock));
        }
    }
}
